"""
Retention, once a day: what became final long ago goes, in chunks whose size follows how long they take.

A message works for less than a minute and leaves the rest to the next tick; between two chunks it rests as long as the
last one took, so that what is being sent meanwhile keeps the greater part of the ledger's time.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import dramatiq
import psycopg

from shared.domain.chunks import FIRST_CHUNK, next_chunk
from shared.domain.digests import LogEvent
from shared.jobs import MESSAGE_VERSION, Broker, JobName, QueueName
from shared.ledger import operation_results, retention
from shared.ledger.db import POSTGRES_AWAY, ROW_BROKEN, Connection
from shared.ledger.retention import OldSend
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)

#: Seconds for which a message works, and after which a run that says nothing is taken over.
_WORK_S, _SILENT_S = 50.0, 120.0
#: Seconds between the beginnings of two runs: a day less a little, so that each begins at about the same time.
_DAY_S = 24 * 3600.0 - 300.0
#: Seconds between two lines about progress.
_SAY_S = 10.0
_SENDS = 100
#: Operations looked at in a run, more than people make in a day; seconds for a statement about one of them.
_OPERATIONS, _PATIENCE_S = 1_000, 10.0


class _TimeUp(Exception):  # noqa: N818  # the end of a turn, not a mistake
    """The rest is for the next message."""


class Retention:
    """One turn of a day's run."""

    def __init__(self, runtime: Runtime, run: int, *, patience_s: float = _PATIENCE_S, say_s: float = _SAY_S) -> None:
        self._runtime = runtime
        self._run = run
        self._patience_s, self._say_s = patience_s, say_s
        self._until = time.monotonic() + _WORK_S
        self._said_at = time.monotonic()
        self._longest_ms = 0
        #: Rows of the next chunk by kind: a million batches in an hour say nothing about deliveries.
        self._chunks: defaultdict[str, int] = defaultdict(lambda: FIRST_CHUNK)
        #: An operation took too long: the run is over when its turn is, and the rest is for tomorrow's.
        self._left_out = False

    def work(self) -> None:
        """Work until nothing old is left or the turn is over."""
        settings = self._runtime.settings
        try:
            self._sends(settings.retention_days)
            self._notifications(settings.notification_retention_days)
            kinds = retention.kinds_by_age(
                days=settings.retention_days, notification_days=settings.notification_retention_days
            )
            for kind, days in kinds.items():
                self._by_age(kind, days)
            self._operations(settings.retention_days)
        except _TimeUp:
            if not self._left_out:
                self._note(rests=True)
                return
        except psycopg.Error as error:
            self._interrupted(error)
            raise
        removed = self._note(over=True)
        extra = {"event_id": LogEvent.RETENTION_DONE.value, "longest_ms": self._longest_ms}
        _log.info("retention_done", extra={**extra, **{f"removed_{kind}": count for kind, count in removed.items()}})

    def _sends(self, days: int) -> None:
        after, after_id = retention.EARLIEST, retention.NO_ID
        while True:
            with self._runtime.ledger.autocommit() as connection:
                found = retention.old_sends(connection, days=days, limit=_SENDS, after=after, after_id=after_id)
            for send in found:
                self._forget(send)
            if len(found) < _SENDS:
                return
            after, after_id = found[-1].over_at, found[-1].id

    def _forget(self, send: OldSend) -> None:
        if not send.begun:
            with self._turn() as (connection, _):
                begun = retention.begin_forgetting(connection, send.id)
            if not begun:
                return
        self._batches(send)
        row = 0
        while True:
            with self._runtime.ledger.autocommit() as connection:
                first = retention.first_row(connection, send.id, after=row)
            if first is None:
                break
            row = first + self._chunks["deliveries"] - 1
            with self._turn("deliveries") as (connection, removed):
                removed.update(retention.remove_deliveries(connection, send.id, first=first, last=row))
        with self._turn() as (connection, removed):
            retention.end_forgetting(connection, send.id)
            removed["sends"] = 1

    def _batches(self, send: OldSend) -> None:
        after = -1
        while True:
            limit = self._chunks["batches"]
            with self._turn("batches") as (connection, removed):
                gone, after = retention.remove_batches(connection, send.id, after=after, limit=limit)
                removed["batches"] = gone
            if gone < limit:
                return

    def _notifications(self, days: int) -> None:
        with self._runtime.ledger.autocommit() as connection:
            channels = retention.channels(connection, days=days)
        for channel_id, kept_days in channels:
            after, after_id = retention.EARLIEST, 0
            while True:
                limit = self._chunks["notifications"]
                with self._turn("notifications") as (connection, removed):
                    page = retention.remove_notifications(
                        connection, channel_id, days=kept_days, limit=limit, after=after, after_id=after_id
                    )
                    removed["notifications"] = page.removed
                if page.seen < limit:
                    break
                after, after_id = page.last_at, page.last_id

    def _operations(self, days: int) -> None:
        """Last, since one of them may be too large to be counted, and each by itself: it holds nothing else up."""
        with self._runtime.ledger.autocommit() as connection:
            to_note = operation_results.to_note(connection, run=self._run, limit=_OPERATIONS)
        for operation in to_note:
            with self._leaving_out(operation), self._turn(patience_s=self._patience_s) as (connection, _):
                operation_results.note(connection, operation)
        with self._runtime.ledger.autocommit() as connection:
            to_empty = operation_results.to_empty(connection, days=days, run=self._run, limit=_OPERATIONS)
        for operation in to_empty:
            with self._leaving_out(operation):
                self._empty(operation)

    @contextmanager
    def _leaving_out(self, operation: UUID) -> Iterator[None]:
        """Pass over an operation that cannot be worked on in time; another run comes back to it."""
        try:
            yield
        except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable, *ROW_BROKEN) as error:
            self._left_out = True
            extra = {"event_id": LogEvent.RETENTION_LEFT_OUT.value, "error": type(error).__name__}
            _log.warning("retention_left_out", extra={**extra, "operation": str(operation)})

    def _empty(self, operation: UUID) -> None:
        with self._turn(patience_s=self._patience_s) as (connection, _):
            if operation_results.is_kept(connection, operation):
                return
        while True:
            limit = self._chunks["operation_items"]
            with self._turn("operation_items", patience_s=self._patience_s) as (connection, removed):
                removed["operation_items"] = operation_results.remove_items(connection, operation, limit=limit)
                if removed["operation_items"] == 0:
                    operation_results.end_emptying(connection, operation)
            if removed["operation_items"] == 0:
                return

    def _by_age(self, kind: str, days: int) -> None:
        while True:
            limit = self._chunks[kind]
            with self._turn(kind) as (connection, removed):
                removed[kind] = retention.remove_by_age(connection, kind, days=days, limit=limit)
            if removed[kind] < limit:
                return

    @contextmanager
    def _turn(
        self, kind: str | None = None, *, patience_s: float | None = None
    ) -> Iterator[tuple[Connection, Counter[str]]]:
        """
        One chunk in one transaction, which counts what it removes; then a rest as long as it took, and the size of the
        next one of its `kind`. `patience_s`: a statement that takes longer is broken off.

        What was counted in memory would be lost with a process that is killed.
        """
        if self._runtime.draining or time.monotonic() >= self._until:
            raise _TimeUp
        removed: Counter[str] = Counter()
        began = time.monotonic()
        with self._runtime.ledger.transaction() as connection:
            if patience_s is not None:
                retention.limit_statements(connection, seconds=patience_s)
            yield connection, removed
            so_far = retention.note(connection, self._run, removed=removed, longest_ms=self._longest_ms)
        took = time.monotonic() - began
        self._longest_ms = max(self._longest_ms, round(took * 1000))
        if kind is not None:
            self._chunks[kind] = next_chunk(self._chunks[kind], done=removed[kind], took_s=took)
        self._say(so_far)
        self._runtime.wait_draining(took)

    def _say(self, so_far: dict[str, int]) -> None:
        if time.monotonic() - self._said_at >= self._say_s:
            self._said_at = time.monotonic()
            extra = {f"removed_{kind}": count for kind, count in so_far.items()}
            _log.info("retention_progress", extra={"event_id": LogEvent.RETENTION_PROGRESS.value, **extra})

    def _note(self, *, over: bool = False, rests: bool = False, error: str | None = None) -> dict[str, int]:
        with self._runtime.ledger.autocommit() as connection:
            return retention.note(
                connection, self._run, removed={}, longest_ms=self._longest_ms, over=over, rests=rests, error=error
            )

    def _interrupted(self, error: psycopg.Error) -> None:
        extra = {"event_id": LogEvent.RETENTION_INTERRUPTED.value, "error": type(error).__name__}
        _log.warning("retention_interrupted", extra=extra)
        try:
            self._note(error=f"interrupted: {type(error).__name__}")
        except POSTGRES_AWAY:
            return  # the run shows without progress, and is gone on with


def run_retention(
    runtime: Runtime,
    *,
    every_s: float = _DAY_S,
    silent_s: float = _SILENT_S,
    patience_s: float = _PATIENCE_S,
    say_s: float = _SAY_S,
) -> None:
    """
    Begin a day's run or go on with one, where it is time.

    `patience_s` is for a statement about an operation, `say_s` between two lines about progress.
    """
    with runtime.ledger.transaction() as connection:
        run = retention.take(connection, worker=runtime.lease.name, every_s=every_s, silent_s=silent_s)
    if run is not None:
        Retention(runtime, run, patience_s=patience_s, say_s=say_s).work()


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""

    @dramatiq.actor(broker=broker, actor_name=JobName.RETENTION.value, queue_name=QueueName.OPS.value)
    def retain(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v != MESSAGE_VERSION:
            return
        try:
            run_retention(runtime)
        except POSTGRES_AWAY as error:
            _log.warning("retention_without_postgres", extra={"error": type(error).__name__})
