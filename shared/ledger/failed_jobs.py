"""Jobs that ended in an exception or were set aside: the newest thousand, for people to look at."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_INSERT = statement("insert_failed_job")
_SELECT = statement("select_failed_jobs")


@dataclass(frozen=True, slots=True)
class FailedJob:
    """One of them; `kind` is `raised` or `set_aside`, `starts` how often it was begun. The error is masked."""

    id: int
    at: datetime
    queue: str
    job: str
    kind: str
    send_id: UUID | None
    tenant: str | None
    error: str
    starts: int | None


def record(
    connection: Connection,
    *,
    queue: str,
    job: str,
    kind: str,
    send_id: UUID | None,
    error: str,
    starts: int | None = None,
) -> None:
    """Write one down and forget those that are too many; `error` is masked and cut already."""
    connection.execute(
        _INSERT,
        {"queue": queue, "job": job, "kind": kind, "send_id": send_id, "error": error, "starts": starts},
    )


def newest(connection: Connection, *, limit: int) -> list[FailedJob]:
    """The newest first."""
    return [FailedJob(*row) for row in connection.execute(_SELECT, {"limit": limit})]
