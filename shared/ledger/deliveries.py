"""Deliveries: claimed a window at a time, recorded in groups, fenced by the claim."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from shared.domain.signature import FailureSignature
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger.db import Connection, together
from shared.ledger.queries import statement

_CLAIM = statement("claim_window")
_CLAIMED = statement("find_claimed_rows")
_RECORD = statement("record_outcomes")
_LOCK_LATE = statement("lock_for_late_outcome")
_RECORD_LATE = statement("record_late_outcome")
_SETTLE_TAKEN = statement("settle_taken_row")
_SUPPRESS = statement("suppress_addresses")
_NOTE_GROUP = statement("note_failure_group")


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A row marked `sending` under our claim; `attempt_count` is what was used before this try."""

    row_no: int
    batch_no: int
    address: str
    params: dict[str, Any] | None
    attempt_count: int
    epoch: int
    attempt_at: datetime
    previous_attempt_at: datetime | None
    suppressed: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """Which window of which send, on which channel: the fence of everything recorded for it."""

    send_id: UUID
    channel: Channel
    claim_id: UUID
    started_at: datetime
    provider: str


@dataclass(frozen=True, slots=True)
class Result:
    """One ended call: what the row becomes and what the attempt's row says. Texts are masked and cut already."""

    row_no: int
    batch_no: int
    became: DeliveryStatus
    uses_attempt: bool
    next_attempt_at: datetime | None
    ref: str | None
    outcome: str
    code: str | None
    detail: str | None
    signature: str | None
    ended_at: datetime
    evidence: dict[str, str] | None
    #: Of an unsure row: when a look at what the provider knows is worth it; None parks it.
    prove_at: datetime | None = None


def claim_window(
    connection: Connection,
    *,
    send_id: UUID,
    channel: Channel,
    worker: UUID,
    batches: Sequence[int],
    claim: UUID,
    limit: int,
    provider: str,
    credential: str,
) -> list[ClaimedDelivery]:
    """
    Mark up to `limit` due rows of held batches `sending`; commit before the first call.

    `provider` and `credential` name the account about to be called: should nobody learn the outcome, only there
    can it be found out.
    Empty when nothing is due, the send is no longer being sent, or the batches are no longer held.
    """
    cursor = connection.execute(
        _CLAIM,
        {
            "send_id": send_id,
            "channel": channel.value,
            "worker": worker,
            "batches": list(batches),
            "claim": claim,
            "limit": limit,
            "provider": provider,
            "credential": credential,
        },
    )
    return [ClaimedDelivery(*row) for row in cursor.fetchall()]


def give_back_claim(connection: Connection, *, send_id: UUID, channel: Channel, claim: UUID, provider: str) -> int:
    """
    Undo a claim whose commit was not heard of: no call of it was made; how many rows are owed again.

    Nothing where it was never committed. Rows that were parked meanwhile, the lease being lost, come back too.
    """
    found = connection.execute(_CLAIMED, {"send_id": send_id, "channel": channel.value, "claim": claim}).fetchall()
    if not found:
        return 0
    claimed = Claim(send_id, channel, claim, found[0][2], provider)
    now = datetime.now(UTC)
    left = record(connection, claimed, [_not_attempted(row_no, batch_no, now) for row_no, batch_no, _ in found])
    for result in left:
        record_late(connection, claimed, result, late_claim=uuid4())
    return len(found)


def _not_attempted(row_no: int, batch_no: int, now: datetime) -> Result:
    return Result(
        row_no=row_no,
        batch_no=batch_no,
        became=DeliveryStatus.OWED,
        uses_attempt=False,
        next_attempt_at=None,
        ref=None,
        outcome="not_attempted",
        code="not_attempted",
        detail=None,
        signature=None,
        ended_at=now,
        evidence=None,
    )


def record(connection: Connection, claim: Claim, results: Sequence[Result]) -> list[Result]:
    """
    Record a group of ended calls; the results whose rows were no longer ours (to be recorded as late).

    Rows, attempts and the counts of their batches change together or not at all. What is left is looked at once
    more: a row that somebody was changing at that moment (a receipt came) is found at its new place.
    """
    left = _record_once(connection, claim, results)
    return _record_once(connection, claim, left) if left else []


def _record_once(connection: Connection, claim: Claim, results: Sequence[Result]) -> list[Result]:
    """Record; what did not find its row."""
    done = connection.execute(
        _RECORD,
        {
            "send_id": claim.send_id,
            "claim": claim.claim_id,
            "channel": claim.channel.value,
            "provider": claim.provider,
            "started": claim.started_at,
            "rows": _array([r.row_no for r in results]),
            "batches": _array([r.batch_no for r in results]),
            "became": _array([r.became.value for r in results]),
            "uses": _array([r.uses_attempt for r in results]),
            "next": _array([r.next_attempt_at for r in results]),
            "refs": _array([r.ref for r in results]),
            "errors": _array([r.detail for r in results]),
            "outcomes": _array([r.outcome for r in results]),
            "codes": _array([r.code for r in results]),
            "details": _array([r.detail for r in results]),
            "signatures": _array([r.signature for r in results]),
            "ended": _array([r.ended_at for r in results]),
            "evidence": _array([None if r.evidence is None else json.dumps(r.evidence) for r in results]),
            "prove": _array([r.prove_at for r in results]),
        },
    ).fetchall()
    if len(done) == len(results):
        return []
    ours = {row[0] for row in done}
    return [result for result in results if result.row_no not in ours]


def _array(values: Sequence[str | int | datetime | None]) -> str | None:
    """
    Give a Postgres array as text; None, which unnest fills up with NULLs, where there is nothing in it.

    The driver's own lists take a dumper per element: a fifth of a worker's CPU time, measured at 25 results a group.
    """
    if not any(value is not None for value in values):
        return None
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | int | datetime | None) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def record_late(connection: Connection, claim: Claim, result: Result, *, late_claim: UUID) -> bool:
    """
    Let what is known of a call after all win over `unsure`, proving or parked; False when the row has moved on.

    The result of a call that outlived its lease, a receipt, a slow look-up.
    """
    parameters = {
        "send_id": claim.send_id,
        "claim": claim.claim_id,
        "late_claim": late_claim,
        "channel": claim.channel.value,
        "provider": claim.provider,
        "started": claim.started_at,
        "row_no": result.row_no,
        "became": result.became.value,
        "uses": result.uses_attempt,
        "next": result.next_attempt_at,
        "ref": result.ref,
        "error": result.detail,
        "outcome": result.outcome,
        "code": result.code,
        "detail": result.detail,
        "signature": result.signature,
        "ended": result.ended_at,
        "evidence": None if result.evidence is None else json.dumps(result.evidence),
    }
    with together(connection):
        connection.execute(_LOCK_LATE, {"send_id": claim.send_id, "row_no": result.row_no})
        return connection.execute(_RECORD_LATE, parameters).fetchone() is not None


def settle_taken(
    connection: Connection, claim: Claim, *, row_no: int, epoch: int, ref: str | None, evidence: dict[str, str]
) -> bool:
    """
    A report proves that a delivery which waits for its next call was taken; False when it waits no more.

    `claim` names send, channel and provider; its id is that of the attempt that says so.
    """
    parameters = {
        "send_id": claim.send_id,
        "row_no": row_no,
        "epoch": epoch,
        "late_claim": claim.claim_id,
        "channel": claim.channel.value,
        "provider": claim.provider,
        "ref": ref,
        "evidence": json.dumps(evidence),
    }
    with together(connection):
        connection.execute(_LOCK_LATE, {"send_id": claim.send_id, "row_no": row_no})
        return connection.execute(_SETTLE_TAKEN, parameters).fetchone() is not None


def suppress(
    connection: Connection, *, tenant_id: int, channel: Channel, addresses: Sequence[str], reason: str
) -> None:
    """Put addresses on a tenant's suppression list."""
    parameters = {"tenant_id": tenant_id, "channel": channel.value, "addresses": list(addresses), "reason": reason}
    connection.execute(_SUPPRESS, parameters)


def note_failure_group(
    connection: Connection, signature: FailureSignature, *, channel: Channel, provider: str, outcome: str
) -> None:
    """Name a kind of failure the first time it is seen."""
    connection.execute(
        _NOTE_GROUP,
        {
            "signature": signature.id,
            "version": signature.version,
            "channel": channel.value,
            "provider": provider,
            "outcome": outcome,
            "title": signature.title,
        },
    )
