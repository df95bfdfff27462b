"""Dispatch runs and tests of channels: asked for by the clock or a person, done by a worker, shown to whoever asked."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_ASK = statement("ask_digest_run")
_BEGIN = statement("begin_digest_run")
_BEGIN_PERIODIC = statement("begin_periodic_digest_run")
_GIVE_UP = statement("give_up_digest_run")
_END = statement("end_digest_run")
_SELECT = statement("select_digest_run")
_SELECT_LAST = statement("select_last_digest_run")
#: Seconds beside the longest call: for the claims before it and the record after it.
_SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class DigestRun:
    """
    A run; `result` is set at its end. `begun_s`: seconds since a worker took it up, 0 where none has. `channel` is the
    name of that which it tests, None where all are told.
    """

    id: UUID
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    result: dict[str, Any] | None
    begun_s: float
    channel: str | None

    def is_broken_off(self, *, longest_call_s: float) -> bool:
        """Whether its worker must have gone: it said nothing in the time of the longest call and a minute more."""
        return self.result is None and self.begun_s > longest_call_s + _SILENT_S


def ask(connection: Connection, id_: UUID, *, asked_by: str, channel_id: int | None = None) -> None:
    """Write down that a person wants a dispatch, or a test of a channel; the message to a worker comes after."""
    connection.execute(_ASK, {"id": id_, "channel_id": channel_id, "asked_by": asked_by})


def begin(connection: Connection, id_: UUID, *, worker: str) -> tuple[bool, int | None]:
    """Take up what a person asked for: whether it is ours to do, and the channel to test, None for a dispatch."""
    row = connection.execute(_BEGIN, {"id": id_, "worker": worker}).fetchone()
    return (False, None) if row is None else (True, row[0])


def begin_periodic(connection: Connection, id_: UUID, *, worker: str) -> None:
    """Write down the clock's run."""
    connection.execute(_BEGIN_PERIODIC, {"id": id_, "worker": worker})


def end(connection: Connection, id_: UUID, *, result: dict[str, Any]) -> None:
    """Write down what it came to."""
    connection.execute(_END, {"id": id_, "result": Jsonb(result)})


def give_up(connection: Connection, id_: UUID) -> bool:
    """End what no worker could be told of, so that none does it later; False where one has taken it up already."""
    result = {"skipped": "Redis did not answer, so that no worker could be told"}
    return connection.execute(_GIVE_UP, {"id": id_, "result": Jsonb(result)}).rowcount > 0


def find(connection: Connection, id_: UUID) -> DigestRun | None:
    """One run."""
    row = connection.execute(_SELECT, {"id": id_}).fetchone()
    return None if row is None else DigestRun(*row)


def last(connection: Connection) -> DigestRun | None:
    """The newest dispatch that came to its end."""
    row = connection.execute(_SELECT_LAST).fetchone()
    return None if row is None else DigestRun(*row)
