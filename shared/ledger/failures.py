"""Open failures as people look at them: groups, pages of a list, one delivery and its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.masking import mask_address, mask_text
from shared.domain.requeue import FailureFilter
from shared.domain.states import Channel
from shared.ledger import audit
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_GROUPS = statement("group_failures")
_CAUSES = statement("describe_causes")
_LIST = statement("list_failures")
_RETRIES = statement("list_retries")
_HASH = statement("hash_address")
_ONE = statement("select_failed_delivery")
_HISTORY = statement("select_history")
_WRITE_NOTE = statement("write_failure_note")
_DELETE_NOTE = statement("delete_failure_note")

#: Failures since a requeue that are looked at for those that failed again: of one cause, and of all asked for together.
_MOST_AGAIN, _MOST_LOOKS = 1_000, 10_000
#: The title of a cause that nothing is known of.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Group:
    """
    Open failures that have `key` in common. `hours` counts those of the last day by their age in hours.

    `tenant` is the name of one of theirs, `send_name` that of the send where they are grouped by it; masked.
    """

    key: str
    count: int
    tenants: int
    statuses: list[str]
    channels: list[str]
    oldest: datetime
    newest: datetime
    groups: int
    hours: dict[str, int] | None
    tenant: str
    send_name: str | None


@dataclass(frozen=True, slots=True)
class Cause:
    """
    What is known of a signature. The last requeue is the newest that took one of its deliveries.

    `again` of these failed for this cause once more, and are open now; `again_more`: at least so many.
    """

    signature: str
    title: str
    outcome: str | None
    channel: str | None
    provider: str | None
    first_seen_at: datetime | None
    note: str | None
    note_author: str | None
    note_at: datetime | None
    operation: UUID | None
    operator: str | None
    operation_status: str | None
    done: int | None
    total: int | None
    requeued_at: datetime | None
    again: int
    again_more: bool


@dataclass(frozen=True, slots=True)
class Line:
    """
    One failure in a list; `to` is masked. `send_over_at` is when its send was finished.

    `attempts` are those of all its lives, `last_attempts` those since its last requeue.
    """

    send_id: UUID
    row_no: int
    failed_at: datetime
    channel: str
    status: str
    provider: str | None
    outcome: str | None
    code: str | None
    signature: str
    attempts: int
    last_attempts: int
    discarded_at: datetime | None
    discarded_by: str | None
    tenant: str
    send_name: str | None
    to: str
    error: str
    send_over_at: datetime | None


@dataclass(frozen=True, slots=True)
class Retry:
    """A delivery between two tries; `to` and `error` are masked. `is_paused`: its send is, and keeps it."""

    send_id: UUID
    row_no: int
    channel: str
    to: str
    provider: str | None
    attempts: int
    next_attempt_at: datetime
    error: str
    tenant: str
    send_name: str | None
    is_paused: bool


def groups(connection: Connection, asked: FailureFilter, *, by: str, limit: int) -> list[Group]:
    """
    The largest groups of open failures by `error`, `tenant`, `provider`, `channel`, `kind` or `send`.

    The key is the signature, the tenant's id, the provider's name, the channel, the status or the send's id.
    """
    rows = connection.execute(_GROUPS, {**_conditions(asked), "by": by, "limit": limit}, prepare=False)
    return [Group(*(*row[:-1], mask_text(row[-1]) if row[-1] else None)) for row in rows]


def causes(connection: Connection, signatures: Sequence[str]) -> dict[str, Cause]:
    """What is known of causes, by signature; titles and notes are masked."""
    most = min(_MOST_AGAIN, _MOST_LOOKS // max(len(signatures), 1))
    rows = connection.execute(_CAUSES, {"signatures": list(signatures), "most": most}, prepare=False)
    return {row[0]: Cause(row[0], mask_text(row[1]), *row[2:]) for row in rows}


def named(connection: Connection, asked: FailureFilter) -> FailureFilter:
    """The filter with the title of the cause that it names, for its words; as it is where nothing is known of that."""
    if asked.signature is None or asked.cause is not None:
        return asked
    title = causes(connection, [asked.signature])[asked.signature].title
    return asked if title == UNKNOWN else replace(asked, cause=title)


def page(
    connection: Connection,
    asked: FailureFilter,
    *,
    discarded: bool,
    before: tuple[datetime, UUID, int] | None,
    limit: int,
) -> list[Line]:
    """Failures, the newest first; `before` is the last one of the page before."""
    moment, after_send, after_row = before or (None, None, None)
    rows = connection.execute(
        _LIST,
        {
            **_conditions(asked),
            "discarded": discarded,
            "before": moment,
            "after_send": after_send,
            "after_row": after_row,
            "limit": limit,
        },
        prepare=False,
    )
    return [_line(row) for row in rows]


def retries(connection: Connection, *, limit: int) -> list[Retry]:
    """Deliveries that wait for another try of the machine, those due first."""
    rows = connection.execute(_RETRIES, {"limit": limit}, prepare=False)
    return [_retry(row) for row in rows]


def address_hash(connection: Connection, channel: Channel, address: str) -> str:
    """The hash under which an address is found, as hexadecimal digits."""
    row = connection.execute(_HASH, {"channel": channel.value, "address": address}).fetchone()
    assert row is not None  # noqa: S101  # a SELECT without FROM has one row
    return str(row[0])


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """One delivery as its page shows it, in whatever state it is; `address` is not masked, and not for showing."""

    channel: str
    status: str
    address: str
    attempts: int
    epoch: int
    settled_at: datetime | None
    provider: str | None
    provider_ref: str | None
    error: str | None
    receipt_status: str | None
    prove_at: datetime | None
    next_attempt_at: datetime | None
    reference: str | None
    tenant: str
    send_name: str | None
    accepted_at: datetime
    send_status: str
    signature: str | None
    outcome: str | None
    refused: bool | None
    discarded_at: datetime | None
    discarded_by: str | None
    discarded_operation: UUID | None

    @property
    def masked(self) -> str:
        """The address as it may be shown."""
        return mask_address(self.channel, self.address)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a delivery; `kind` is `attempt`, `receipt` or `operation`."""

    at: datetime
    kind: str
    epoch: int
    number: int | None
    provider: str
    outcome: str
    became: str | None
    code: str | None
    detail: str | None
    signature: str | None
    seconds: float | None
    evidence: Mapping[str, Any] | None
    operation: UUID | None


def find(connection: Connection, send_id: UUID, row_no: int) -> FailedDelivery | None:
    """One delivery, its error and the tenant's reference masked; None when there is none."""
    row = connection.execute(_ONE, {"send_id": send_id, "row_no": row_no}).fetchone()
    if row is None:
        return None
    found = FailedDelivery(*row)
    error, reference = (mask_text(text) if text else text for text in (found.error, found.reference))
    return replace(found, error=error, reference=reference)


def history(connection: Connection, send_id: UUID, row_no: int) -> list[Event]:
    """What happened to a delivery, the oldest first; texts are masked."""
    rows = connection.execute(_HISTORY, {"send_id": send_id, "row_no": row_no}, prepare=False)
    return [_event(row) for row in rows]


def write_note(connection: Connection, signature: str, text: str, *, author: str) -> None:
    """Replace the note of a cause; an empty one is taken away. Addresses in it are masked."""
    text = mask_text(text.strip())
    if text:
        connection.execute(_WRITE_NOTE, {"signature": signature, "text": text, "author": author})
    else:
        connection.execute(_DELETE_NOTE, {"signature": signature})
    audit.record(
        connection,
        operator=author,
        action="note",
        target=f"failure group {signature}",
        result="written" if text else "removed",
        detail={"text": text},
    )


def _line(row: tuple[Any, ...]) -> Line:
    channel, address, error = row[3], row[15], row[16]
    return Line(*(*row[:15], mask_address(channel, address), mask_text(error or ""), row[17]))


def _retry(row: tuple[Any, ...]) -> Retry:
    channel, address, error = row[2], row[3], row[7]
    return Retry(*(*row[:3], mask_address(channel, address), *row[4:7], mask_text(error or ""), *row[8:]))


def _event(row: tuple[Any, ...]) -> Event:
    detail = None if row[8] is None else mask_text(row[8])
    return Event(*(*row[:8], detail, *row[9:]))


def _conditions(asked: FailureFilter) -> dict[str, Any]:
    return {
        "statuses": sorted(status.value for status in asked.statuses),
        "signature": asked.signature,
        "tenant": asked.tenant,
        "channel": asked.channel.value if asked.channel else None,
        "provider": asked.provider,
        "send_id": asked.send_id,
        "since": asked.since,
        "recipient": bytes.fromhex(asked.recipient) if asked.recipient else None,
        "left_by": asked.operation,
    }
