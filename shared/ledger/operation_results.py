"""
What came of operations: skipped and why, and what has become of what each did; written down before retention comes.

An operation is kept for good, its set of items is not: once it ended long ago and none of what the items name is there
any more, they are removed. What became of them was written down a day after its end, when nearly all of it is settled.
Of a large one it is counted before that, too, at growing intervals from its end on: a page has no time for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.requeue import LeftOut
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SKIPS = statement("operation_skips")
_OUTCOME = statement("operation_outcome")
_SENT = statement("count_sent_of_requeues")
_NOTIFICATION_OUTCOME = statement("notification_operation_outcome")
_NOTED = statement("select_operation_result")
_COUNTED = statement("select_operation_count")
_TO_COUNT = statement("find_operations_to_count")
_NOTE_COUNT = statement("note_operation_count")
_TO_NOTE = statement("find_operations_to_note")
_NOTE = statement("note_operation_result")
_TO_EMPTY = statement("find_operations_to_empty")
_IS_KEPT = statement("operation_is_kept")
_REMOVE = statement("remove_operation_items")
_EMPTIED = statement("end_emptying_operation")

#: Items above which an operation is large: what became of them is a look at each.
LARGE = 5_000
#: Items looked at to count what is sent of several.
_MOST_LOOKS = 10_000
#: In an outcome: what retention has removed meanwhile.
REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many have become what, by state; `noted_at` where that was written down and is not counted now."""

    counts: Mapping[str, int]
    noted_at: datetime | None = None


def skips(connection: Connection, id_: UUID) -> dict[LeftOut, int]:
    """Why items were skipped."""
    noted = _noted(connection, id_)
    if noted is not None:
        return {LeftOut(why): count for why, count in noted["skips"].items()}
    return {LeftOut(why): count for why, count in connection.execute(_SKIPS, {"id": id_})}


def outcome(connection: Connection, id_: UUID) -> Outcome:
    """What has become of what it was done to; those requeued again since are counted as such."""
    counts = _count(connection, id_)
    noted = _noted(connection, id_)
    if noted is None or (counts and REMOVED not in counts):
        return Outcome(counts)
    return Outcome(noted["outcome"], datetime.fromisoformat(noted["at"]))


def sent(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, int | None]:
    """How many of what requeues took are sent since; None where they are too many and nobody has counted them yet."""
    parameters = {"ids": list(ids), "large": LARGE, "most": _MOST_LOOKS}
    return dict(connection.execute(_SENT, parameters, prepare=False).fetchall())


def counted(connection: Connection, id_: UUID) -> Outcome:
    """What had become of it when that was counted last; empty where it never was."""
    row = connection.execute(_COUNTED, {"id": id_}).fetchone()
    return Outcome({}) if row is None else Outcome(row[0]["outcome"], datetime.fromisoformat(row[0]["at"]))


def to_count(connection: Connection, *, limit: int) -> list[UUID]:
    """Large operations of the last day that are to be counted (again), the longest over first."""
    return [row[0] for row in connection.execute(_TO_COUNT, {"large": LARGE, "limit": limit})]


def note_count(connection: Connection, id_: UUID) -> None:
    """Count what has become of it and keep that for a while, inside a transaction."""
    connection.execute(_NOTE_COUNT, {"id": id_, "outcome": Jsonb(_count(connection, id_))})


def note_uncounted(connection: Connection, id_: UUID) -> None:
    """It could not be counted in time: the next count of it comes as late as after one that could."""
    connection.execute(_NOTE_COUNT, {"id": id_, "outcome": Jsonb({})})


def to_note(connection: Connection, *, run: int, limit: int) -> list[UUID]:
    """Operations that ended a day ago and whose result is not written down, in an order of this run's own."""
    return [row[0] for row in connection.execute(_TO_NOTE, {"run": run, "limit": limit})]


def note(connection: Connection, id_: UUID) -> None:
    """Write down what came of an operation that is over, once."""
    result = {
        "at": datetime.now(UTC).isoformat(),
        "skips": {why.value: count for why, count in skips(connection, id_).items()},
        "outcome": _count(connection, id_),
    }
    connection.execute(_NOTE, {"id": id_, "result": Jsonb(result)})


def to_empty(connection: Connection, *, days: int, run: int, limit: int) -> list[UUID]:
    """Operations that ended so long ago and have items, in an order of this run's own."""
    return [row[0] for row in connection.execute(_TO_EMPTY, {"days": days, "run": run, "limit": limit})]


def is_kept(connection: Connection, id_: UUID) -> bool:
    """Whether anything that its items name is there."""
    row = connection.execute(_IS_KEPT, {"id": id_}, prepare=False).fetchone()
    return row is not None and bool(row[0])


def remove_items(connection: Connection, id_: UUID, *, limit: int) -> int:
    """Remove some of an operation's items; how many."""
    row = connection.execute(_REMOVE, {"id": id_, "limit": limit}).fetchone()
    return 0 if row is None else int(row[0])


def end_emptying(connection: Connection, id_: UUID) -> None:
    """None of its items is left."""
    connection.execute(_EMPTIED, {"id": id_})


def _count(connection: Connection, id_: UUID) -> dict[str, int]:
    counted = connection.execute(_OUTCOME, {"id": id_}).fetchall()
    return dict(counted or connection.execute(_NOTIFICATION_OUTCOME, {"id": id_}).fetchall())


def _noted(connection: Connection, id_: UUID) -> dict[str, Any] | None:
    row = connection.execute(_NOTED, {"id": id_}).fetchone()
    return None if row is None else row[0]
