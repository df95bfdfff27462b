"""Receipts: what providers report about messages they took, early, late, twice and in any order."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from shared.domain.receipts import SUPPRESSION_CODES, ReceiptStatus, earlier_than
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger import deliveries, providers
from shared.ledger.db import Connection, together
from shared.ledger.deliveries import Claim, Result
from shared.ledger.queries import statement

_OF_RECEIPT = statement("select_delivery_of_receipt")
_OF_REPORT = statement("select_delivery_of_report")
_KEEP = statement("keep_receipt")
_WAITING = statement("find_waiting_receipts")
_ROW = statement("select_row_of_receipt")
_MOVE = statement("move_receipt_status")
_APPLIED = statement("mark_receipt_applied")
_LOCK_MESSAGE = statement("lock_message_of_provider")
_OF_ANOTHER = statement("message_is_of_another")
_WAITING_STATES = frozenset({DeliveryStatus.OWED, DeliveryStatus.RETRYING})


@dataclass(frozen=True, slots=True)
class ReportedDelivery:
    """The delivery a report speaks of, in its present epoch."""

    send_id: UUID
    row_no: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """One report. `status` is a `ReceiptStatus`, or a provider's word that we do not know."""

    id: int
    send_id: UUID
    row_no: int
    epoch: int
    provider: str
    ref: str | None
    status: str
    code: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    status: str
    epoch: int
    claim_id: UUID | None
    provider: str | None
    credential: str | None
    channel: str
    address: str
    attempt_at: datetime | None
    tenant_id: int


def find_delivery(connection: Connection, *, send_id: UUID, row_no: int) -> ReportedDelivery | None:
    """The delivery of an id; None when there is none."""
    row = connection.execute(_OF_RECEIPT, {"send_id": send_id, "row_no": row_no}).fetchone()
    return None if row is None else ReportedDelivery(*row)


def find_reported(
    connection: Connection, *, send_id: UUID, first_row: int, last_row: int, epoch: int, address: str
) -> ReportedDelivery | None:
    """The delivery to a number among rows of a send that were sent together in an epoch; None when there is none."""
    parameters = {"send_id": send_id, "first_row": first_row, "last_row": last_row, "epoch": epoch, "address": address}
    row = connection.execute(_OF_REPORT, parameters).fetchone()
    return None if row is None else ReportedDelivery(*row)


def keep(
    connection: Connection,
    delivery: ReportedDelivery,
    *,
    provider: str,
    ref: str | None,
    status: str,
    code: str | None,
) -> Receipt | None:
    """Keep a report; None when the same one is there already."""
    parameters = {
        "send_id": delivery.send_id,
        "row_no": delivery.row_no,
        "epoch": delivery.epoch,
        "provider": provider,
        "ref": ref,
        "status": status,
        "code": code,
    }
    row = connection.execute(_KEEP, parameters).fetchone()
    if row is None:
        return None
    return Receipt(row[0], delivery.send_id, delivery.row_no, delivery.epoch, provider, ref, status, code)


def find_waiting(connection: Connection, *, after: int, limit: int) -> list[Receipt]:
    """Reports not applied yet, with ids after `after`."""
    return [Receipt(*row) for row in connection.execute(_WAITING, {"after": after, "limit": limit})]


def is_of_another(connection: Connection, *, ref: str, send_id: UUID, row_no: int) -> bool:
    """
    Whether an id of Twilio's is known to be another delivery's message.

    Call within a transaction, in the order of the ids and before a batch is locked: whoever asks for the same id waits
    until it ends.
    """
    connection.execute(_LOCK_MESSAGE, {"ref": ref})
    row = connection.execute(_OF_ANOTHER, {"ref": ref, "send_id": send_id, "row_no": row_no}).fetchone()
    return bool(row and row[0])


def apply(connection: Connection, receipt: Receipt) -> bool:
    """
    Let a report do what it can: prove a delivery taken that is unsure, or that waits for another call after one which
    seemed to have come to nothing; move the state at the provider forward. What is settled stays.

    False when the call has not been recorded yet: the report waits for that. Doing it twice is doing it once.
    """
    with together(connection):
        this = {"send_id": receipt.send_id, "row_no": receipt.row_no}
        found = connection.execute(_ROW, this).fetchone()
        row = None if found is None else _Row(*found)
        if row is not None and row.epoch == receipt.epoch and row.provider in {None, receipt.provider}:
            if row.status == DeliveryStatus.SENDING:
                return False
            if row.status == DeliveryStatus.UNSURE and not _prove_taken(connection, receipt, row):
                return False
            if row.status in _WAITING_STATES and row.attempt_at and not _settle_taken(connection, receipt, row):
                return False
            _move(connection, receipt)
            if receipt.code in SUPPRESSION_CODES.get(receipt.provider, frozenset()):
                deliveries.suppress(
                    connection,
                    tenant_id=row.tenant_id,
                    channel=Channel(row.channel),
                    addresses=[row.address],
                    reason=f"opted out, reported by {receipt.provider}",
                )
            if row.status == DeliveryStatus.UNSURE and row.claim_id is not None:
                _note_taken(connection, receipt, row)
        connection.execute(_APPLIED, {"id": receipt.id})
    return True


def _prove_taken(connection: Connection, receipt: Receipt, row: _Row) -> bool:
    """A report of any state says that the provider took the message, also where it failed there."""
    if row.claim_id is None:
        return True
    now = datetime.now(UTC)
    channel = Channel(row.channel)
    claim = Claim(receipt.send_id, channel, row.claim_id, row.attempt_at or now, receipt.provider)
    result = Result(
        row_no=receipt.row_no,
        batch_no=0,
        became=DeliveryStatus.SENT,
        uses_attempt=True,
        next_attempt_at=None,
        ref=receipt.ref,
        outcome="accepted",
        code="proved_by_receipt",
        detail=None,
        signature=None,
        ended_at=now,
        evidence={"receipt": receipt.status},
    )
    return deliveries.record_late(connection, claim, result, late_claim=uuid4())


def _note_taken(connection: Connection, receipt: Receipt, row: _Row) -> None:
    # After the suppression list, as windows and the prover do it: none of them waits for another crosswise.
    if row.attempt_at is not None and row.credential is not None:
        providers.note_taken(connection, provider=receipt.provider, credential=row.credential, at=row.attempt_at)


def _settle_taken(connection: Connection, receipt: Receipt, row: _Row) -> bool:
    claim = Claim(receipt.send_id, Channel(row.channel), uuid4(), row.attempt_at or datetime.now(UTC), receipt.provider)
    evidence = {"receipt": receipt.status}
    return deliveries.settle_taken(
        connection, claim, row_no=receipt.row_no, epoch=receipt.epoch, ref=receipt.ref, evidence=evidence
    )


def _move(connection: Connection, receipt: Receipt) -> None:
    try:
        status = ReceiptStatus(receipt.status)
    except ValueError:
        return  # a word we do not know; the report itself keeps it
    parameters = {
        "send_id": receipt.send_id,
        "row_no": receipt.row_no,
        "epoch": receipt.epoch,
        "status": status.value,
        "ref": receipt.ref,
        "earlier": [each.value for each in earlier_than(status)],
    }
    connection.execute(_MOVE, parameters)
