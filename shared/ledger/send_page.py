"""Sends as operators see them, of every tenant: one with its books, a page of them, recipients, batches, events."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.books import ChannelBooks
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus
from shared.ledger import overview
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SEND = statement("select_send_for_operators")
_SENDS = statement("select_sends_for_operators")
_OPEN_SENDS = statement("select_open_sends_for_operators")
_RECIPIENTS = statement("select_recipients")
_BATCHES = statement("select_batches_of_send")
_DEEDS = statement("select_deeds_on_send")
_OPERATIONS = statement("select_operations_on_send")

#: Items of one send that are counted of an operation which took those of others too.
MOST_COUNTED = 10_000


@dataclass(frozen=True)
class ListedSend:
    """A send in a list; `accepted` is by channel."""

    id: UUID
    name: str | None
    status: SendStatus
    mode: Mode
    accepted: Mapping[str, int]
    created_at: datetime
    send_at: datetime | None
    completed_at: datetime | None
    cancelled_at: datetime | None
    tenant: str


@dataclass(frozen=True)
class ShownSend(ListedSend):
    """
    A send with its books.

    `forgotten_at` is when retention removed its recipients; the books are the totals then. `subject` is the template.
    `paused_by` is the operator who paused it, None where its tenant or the machine did.
    `cancel_asked_at` is set while a cancel of it can be undone. All is as of `read_at`.
    """

    tenant_id: int
    lane: Lane
    duplicates: Mapping[str, int]
    segments: int | None
    valid_until: datetime | None
    started_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None
    paused_by: str | None
    resumed_at: datetime | None
    forgotten_at: datetime | None
    subject: str | None
    cancel_asked_at: datetime | None
    read_at: datetime
    books: Mapping[Channel, ChannelBooks]

    @property
    def total(self) -> int:
        """Deliveries accepted, over all channels."""
        return sum(self.accepted.values())

    @property
    def remaining(self) -> int:
        """Deliveries that would still be sent: calls in flight and what is being proved are not among them."""
        return self.summed("waiting", "retrying")

    def summed(self, *names: str) -> int:
        """The sum of some parts of the books over all channels."""
        return sum(getattr(books, name) for books in self.books.values() for name in names)


@dataclass(frozen=True, slots=True)
class Recipient:
    """A delivery in a list; the address is not masked yet. `attempt_count` is since its last requeue."""

    row_no: int
    channel: Channel
    status: DeliveryStatus
    address: str
    reference: str | None
    attempt_count: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    settled_at: datetime | None
    provider: str | None
    receipt_status: str | None
    last_error: str | None
    proving: bool
    is_discarded: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that is not settled; `worker` holds it. `count` is how many there are in all."""

    batch_no: int
    channel: Channel
    first_row: int
    last_row: int
    sent: int
    owed: int
    retrying: int
    sending: int
    unsure: int
    due_at: datetime | None
    recovery_count: int
    worker: str | None
    progress_at: datetime | None
    count: int


@dataclass(frozen=True, slots=True)
class Deed:
    """What an operator did to a send."""

    at: datetime
    operator: str
    action: str
    reason: str | None
    result: str


@dataclass(frozen=True, slots=True)
class SendOperation:
    """A bulk operation that took deliveries of a send: `of_send` of its `total`, `done_of_send` of these are done."""

    id: UUID
    kind: str
    status: str
    operator: str
    created_at: datetime
    total: int
    of_send: int
    done_of_send: int

    @property
    def is_cut(self) -> bool:
        """Whether there may be more of the send than were counted."""
        return self.total > self.of_send == MOST_COUNTED


def find(connection: Connection, send_id: UUID) -> ShownSend | None:
    """A send; None for an id that there is not."""
    # Before the send: where retention begins meanwhile, it has written the totals down.
    counted = {channel.value: each for (_, channel), each in overview.counts(connection, [send_id]).items()}
    row = connection.execute(_SEND, {"send_id": send_id}).fetchone()
    if row is None:
        return None
    counts: Mapping[str, Mapping[str, Any]] = counted or row[21] or {}
    accepted = row[4]
    listed = _listed(row)
    return ShownSend(
        **vars(listed),
        tenant_id=row[10],
        lane=Lane(row[11]),
        duplicates=row[12],
        segments=row[13],
        valid_until=row[14],
        started_at=row[15],
        paused_at=row[16],
        pause_reason=row[17],
        paused_by=row[18],
        resumed_at=row[19],
        forgotten_at=row[20],
        subject=row[22],
        cancel_asked_at=row[23],
        read_at=row[24],
        books={Channel(each): ChannelBooks.read(count, counts.get(each, {})) for each, count in accepted.items()},
    )


def page(connection: Connection, *, only_open: bool, before: UUID, limit: int) -> list[ListedSend]:
    """Sends, newest first, older than `before`."""
    rows = connection.execute(_OPEN_SENDS if only_open else _SENDS, {"before": before, "limit": limit})
    return [_listed(row) for row in rows]


def recipients(
    connection: Connection,
    send_id: UUID,
    *,
    statuses: Collection[DeliveryStatus],
    discarded: bool | None = None,
    after: int,
    limit: int,
) -> list[Recipient]:
    """Deliveries in some states, by row number above `after`; `discarded` ones or others alone where it says so."""
    parameters = {
        "discarded": discarded,
        "send_id": send_id,
        "statuses": sorted(status.value for status in statuses),
        "after": after,
        "limit": limit,
    }
    rows = connection.execute(_RECIPIENTS, parameters)
    return [Recipient(row[0], Channel(row[1]), DeliveryStatus(row[2]), *row[3:]) for row in rows]


def open_batches(connection: Connection, send_id: UUID, *, limit: int) -> list[OpenBatch]:
    """Batches that are not settled, those in a worker's hands first."""
    rows = connection.execute(_BATCHES, {"send_id": send_id, "limit": limit})
    return [OpenBatch(row[0], Channel(row[1]), *row[2:]) for row in rows]


def target(send_id: UUID) -> str:
    """How the audit names a send."""
    return f"send {send_id}"


def deeds(connection: Connection, send_id: UUID, *, limit: int) -> list[Deed]:
    """What operators did to a send, newest first."""
    return [Deed(*row) for row in connection.execute(_DEEDS, {"target": target(send_id), "limit": limit})]


def operations(connection: Connection, send_id: UUID, *, limit: int) -> list[SendOperation]:
    """Bulk operations that took deliveries of this send, newest first."""
    parameters = {"send_id": send_id, "limit": limit, "most": MOST_COUNTED}
    rows = connection.execute(_OPERATIONS, parameters, prepare=False)
    return [SendOperation(*row) for row in rows]


def _listed(row: tuple[Any, ...]) -> ListedSend:
    return ListedSend(row[0], row[1], SendStatus(row[2]), Mode(row[3]), *row[4:10])
