"""
Retention: what became final long ago is removed, a chunk at a time, each in a transaction of its own.

Where a day's run stands is kept here, so that one that is broken off goes on where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.ledger import send_events
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_LAST = statement("last_retention_run")
_BEGIN = statement("begin_retention_run")
_RESUME = statement("resume_retention_run")
_NOTE = statement("note_retention")
_SELECT = statement("select_retention_run")
_LIMIT = statement("limit_retention_statements")
_FIND_SENDS = statement("find_sends_to_forget")
_LOCK_SEND = statement("lock_send_to_forget")
_BEGIN_SEND = statement("begin_forgetting_send")
_REMOVE_BATCHES = statement("remove_batches")
_FIRST_ROW = statement("first_delivery_row")
_REMOVE_DELIVERIES = statement("remove_deliveries")
_END_SEND = statement("end_forgetting_send")
_CHANNELS = statement("notification_channels")
_REMOVE_NOTIFICATIONS = statement("remove_notifications")
#: What is removed by age alone, in this order: kind and statement.
_BY_AGE = {
    "events": statement("remove_events"),
    "findings": statement("remove_findings"),
    "digests": statement("remove_digests"),
    "digest_runs": statement("remove_digest_runs"),
    "recovery_passes": statement("remove_recovery_passes"),
    "receipts": statement("remove_lost_receipts"),
}
#: Kinds that follow NOTIFICATION_RETENTION_DAYS; the others follow RETENTION_DAYS.
_OF_NOTIFICATIONS = frozenset({"events", "findings", "digests", "digest_runs"})
#: Before every moment and id.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """A day's run as people see it; `removed` counts rows by kind, `longest_ms` is its longest transaction."""

    started_at: datetime
    ended_at: datetime | None
    worker: str
    removed: dict[str, int]
    longest_ms: int
    error: str | None


@dataclass(frozen=True, slots=True)
class OldSend:
    """A send that was over long ago. `begun`: its totals are written down, and it is being removed."""

    id: UUID
    over_at: datetime
    begun: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Notifications that were looked at: how many, how many of them were removed, and where the next page begins."""

    seen: int
    removed: int
    last_at: datetime
    last_id: int


def take(connection: Connection, *, worker: str, every_s: float, silent_s: float) -> int | None:
    """
    The run to work on, inside a transaction; None while another is at it, or today's is over.

    A run nobody has noted progress of for `silent_s` is gone on with; one begins `every_s` after the last began.
    """
    row = connection.execute(_LAST, {"every_s": every_s, "silent_s": silent_s}).fetchone()
    if row is None or (row[1] and row[2]):
        begun = connection.execute(_BEGIN, {"worker": worker}).fetchone()
        return None if begun is None else int(begun[0])
    if row[1] or not row[3]:
        return None
    resumed = connection.execute(_RESUME, {"id": row[0], "worker": worker, "silent_s": silent_s}).fetchone()
    return None if resumed is None else int(resumed[0])


def limit_statements(connection: Connection, *, seconds: float) -> None:
    """Have statements that take longer broken off, for the rest of this transaction."""
    connection.execute(_LIMIT, {"milliseconds": str(round(seconds * 1000))})


def note(
    connection: Connection,
    run: int,
    *,
    removed: Mapping[str, int],
    longest_ms: int,
    over: bool = False,
    rests: bool = False,
    error: str | None = None,
) -> dict[str, int]:
    """Add to a run's counts what was removed since; the counts. `over` ends it, `rests` lets any worker go on."""
    row = connection.execute(
        _NOTE,
        {
            "id": run,
            "removed": Jsonb({kind: count for kind, count in removed.items() if count}),
            "longest_ms": longest_ms,
            "over": over,
            "rests": rests,
            "error": error,
        },
    ).fetchone()
    return {} if row is None else row[0]


def newest(connection: Connection) -> RetentionRun | None:
    """The newest run."""
    row = connection.execute(_SELECT).fetchone()
    return None if row is None else RetentionRun(*row)


def old_sends(
    connection: Connection, *, days: int, limit: int, after: datetime = EARLIEST, after_id: UUID = NO_ID
) -> list[OldSend]:
    """Sends to forget, oldest first, those after one."""
    parameters = {"days": days, "limit": limit, "after": after, "after_id": after_id}
    return [OldSend(*row) for row in connection.execute(_FIND_SENDS, parameters)]


def begin_forgetting(connection: Connection, send_id: UUID) -> bool:
    """Write a send's totals down for good, inside a transaction; False where it must stay."""
    connection.execute(_LOCK_SEND, {"send_id": send_id})
    return connection.execute(_BEGIN_SEND, {"send_id": send_id}).fetchone() is not None


def remove_batches(connection: Connection, send_id: UUID, *, after: int, limit: int) -> tuple[int, int]:
    """Remove some batches of a send that is being forgotten, those after one; how many, and the last one's number."""
    row = connection.execute(_REMOVE_BATCHES, {"send_id": send_id, "after": after, "limit": limit}).fetchone()
    assert row is not None  # noqa: S101  # a SELECT of counts has one row
    return row[0], after if row[1] is None else row[1]


def first_row(connection: Connection, send_id: UUID, *, after: int = 0) -> int | None:
    """The number of its first delivery that is left after a row; None when none is."""
    row = connection.execute(_FIRST_ROW, {"send_id": send_id, "after": after}).fetchone()
    return None if row is None else int(row[0])


def remove_deliveries(connection: Connection, send_id: UUID, *, first: int, last: int) -> dict[str, int]:
    """Remove a range of its deliveries with their attempts and receipts; how many of each."""
    row = connection.execute(_REMOVE_DELIVERIES, {"send_id": send_id, "first": first, "last": last}).fetchone()
    assert row is not None  # noqa: S101  # a SELECT of counts has one row
    return dict(zip(("deliveries", "attempts", "receipts"), row, strict=True))


def end_forgetting(connection: Connection, send_id: UUID) -> None:
    """Nothing of the send is left but itself."""
    send_events.remove(connection, send_id)
    connection.execute(_END_SEND, {"send_id": send_id})


def channels(connection: Connection, *, days: int) -> list[tuple[int, int]]:
    """Each digest channel with the days for which its notifications are kept, `days` unless it has its own."""
    return connection.execute(_CHANNELS, {"days": days}).fetchall()


def remove_notifications(
    connection: Connection, channel_id: int, *, days: int, limit: int, after: datetime, after_id: int
) -> Page:
    """Look at a page of a channel's old notifications and remove what no active finding is behind."""
    parameters = {"channel_id": channel_id, "days": days, "limit": limit, "after": after, "after_id": after_id}
    row = connection.execute(_REMOVE_NOTIFICATIONS, parameters, prepare=False).fetchone()
    assert row is not None  # noqa: S101  # a SELECT of counts has one row
    return Page(row[0], row[1], row[2] or after, row[3] or after_id)


def kinds_by_age(*, days: int, notification_days: int) -> dict[str, int]:
    """What is removed by age alone, with the days for which it is kept."""
    return {kind: notification_days if kind in _OF_NOTIFICATIONS else days for kind in _BY_AGE}


def remove_by_age(connection: Connection, kind: str, *, days: int, limit: int) -> int:
    """Remove rows of a kind that are old; how many."""
    return connection.execute(_BY_AGE[kind], {"days": days, "limit": limit}).rowcount


def as_json(run: RetentionRun | None) -> dict[str, Any] | None:
    """A run for a snapshot."""
    if run is None:
        return None
    ended = run.ended_at.isoformat() if run.ended_at else None
    return {
        "started_at": run.started_at.isoformat(),
        "ended_at": ended,
        "removed": run.removed,
        "longest_ms": run.longest_ms,
        "error": run.error,
    }
