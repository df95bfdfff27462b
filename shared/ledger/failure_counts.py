"""How many failures there are: all that are open, and those of the last minutes that are so still."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.states import Channel
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SUMMARY = statement("summarise_failures")
_RETRIES = statement("summarise_retries")
_FRESH = statement("count_failures_since")

#: Fresh failures of each kind that are counted one by one, in some 20 ms; of more no requeue has cured many.
_MOST_FRESH = 5_000


@dataclass(frozen=True, slots=True)
class Summary:
    """How many are open now, of each kind; `retrying` are between two tries of the machine."""

    dead_lettered: int
    failed: int
    unsure: int
    proving: int
    newest_at: datetime | None
    discarded: int
    retrying: int
    next_retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Fresh:
    """How many failed or were dead-lettered lately and are so still; how many of them were dead-lettered."""

    count: int = 0
    dead_lettered: int = 0


def summary(connection: Connection) -> Summary:
    """How many are open."""
    counts = connection.execute(_SUMMARY, prepare=False).fetchone() or (0, 0, 0, 0, None, 0)
    retries = connection.execute(_RETRIES).fetchone() or (0, None)
    return Summary(*counts, *retries)


def fresh(connection: Connection, *, minutes: int, most: int = _MOST_FRESH) -> dict[Channel, Fresh] | None:
    """
    The live failures of the running minute and the `minutes` before it that are open, by channel.

    None: `most` of one kind or more, test ones among them: too many to be counted each time somebody looks.
    """
    rows = connection.execute(_FRESH, {"minutes": minutes, "most": most}, prepare=False).fetchall()
    if any(may_be_more for *_, may_be_more in rows):
        return None
    return {
        Channel(channel): Fresh(count, dead_lettered)
        for channel, count, dead_lettered, _ in rows
        if channel is not None
    }
