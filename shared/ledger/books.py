"""The books: what was accepted against where it is, for the whole service and for one send; differences by id."""

from dataclasses import dataclass, replace
from uuid import UUID

from shared.domain.books import ChannelBooks
from shared.domain.ids import delivery_id
from shared.domain.states import Channel, Mode, SendStatus
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SUMS = statement("select_book_sums")
_SENDS = statement("find_sends_out_of_balance")
_DELIVERIES = statement("find_deliveries_out_of_balance")


@dataclass(frozen=True, slots=True)
class BookLine:
    """The books of all sends of one mode, channel and status."""

    mode: Mode
    channel: Channel
    status: SendStatus
    books: ChannelBooks


@dataclass(frozen=True, slots=True)
class OutOfBalance:
    """A channel of a send whose parts do not sum to what was accepted."""

    send_id: UUID
    channel: Channel
    accepted: int
    counted: int


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """A delivery, by its public id, that is not counted as what it is, and why."""

    id: str
    why: str


def lines(connection: Connection, *, send_id: UUID | None = None) -> list[BookLine]:
    """The books by mode, channel and status of the send, of one send or of all, at one moment."""
    found = []
    for mode, channel, status, accepted, next_at, counts in connection.execute(_SUMS, {"send_id": send_id}):
        books = replace(ChannelBooks.read(accepted, counts), next_at=next_at)
        found.append(BookLine(Mode(mode), Channel(channel), SendStatus(status), books))
    return found


def sends_out_of_balance(
    connection: Connection, *, send_id: UUID | None = None, since_id: UUID | None = None, limit: int
) -> list[OutOfBalance]:
    """
    Channels of sends whose parts do not sum to what was accepted; of one send or of all.

    `since_id`: only of sends in progress, and of those that are newer than this id.
    """
    rows = connection.execute(_SENDS, {"send_id": send_id, "since_id": since_id, "limit": limit})
    return [OutOfBalance(row[0], Channel(row[1]), *row[2:]) for row in rows]


def deliveries_out_of_balance(connection: Connection, send_id: UUID, *, limit: int) -> list[Unaccounted]:
    """Deliveries of a send that its batches do not count as what they are; reads all its rows."""
    rows = connection.execute(_DELIVERIES, {"send_id": send_id, "limit": limit})
    return [Unaccounted(delivery_id(send_id, row_no), why) for row_no, why in rows]
