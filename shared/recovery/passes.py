"""
One pass of the reconciler at a time, in the whole fleet, and each one written down.

Redis holds the lock, with a lease that is renewed and a fence that grows; while Redis is away a lock of Postgres
stands in, so that a pass can always run. A pass that finds a newer one begun stops: whatever it did stays right,
since every change has a guard of its own.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import psycopg

from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.coordination.single_flight import Flight, FlightLost, SingleFlight
from shared.domain.states import Lane
from shared.ledger import recovery
from shared.ledger.db import Ledger
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Names the lock in Redis.
LOCK = "reconcile"
#: Seconds after which a pass that died is followed by another; renewed by a third.
_LEASE_S = 15.0
Kind = Literal["pending", "ingestion", "scheduled", "batch", "delivery"]
KINDS: tuple[Kind, ...] = ("pending", "ingestion", "scheduled", "batch", "delivery")


@dataclass
class Counts:
    """
    What a pass did about one kind, in sends (pending, ingestion, scheduled) or batches (batch, delivery).

    `retried`: freed or started again; `requeued`: its message was missing and was enqueued anew; `given_up`: what it
    owed was settled as failed, or as dead-lettered after a long outage.
    """

    found: int = 0
    retried: int = 0
    requeued: int = 0
    given_up: int = 0


def no_counts() -> dict[Kind, Counts]:
    """Nothing found of any kind yet."""
    return {kind: Counts() for kind in KINDS}


def as_json(counts: Mapping[Kind, Counts]) -> dict[str, dict[str, int]]:
    """The counts as the ledger keeps them; kinds of which nothing was found are left out."""
    return {kind: asdict(each) for kind, each in counts.items() if each != Counts()}


def kind_of_work(lane: Lane) -> Kind:
    """Work of the single lane is counted as deliveries, that of the bulk lane as batches."""
    return "delivery" if lane is Lane.SINGLE else "batch"


@dataclass
class RunningPass:
    """A pass under way: its counts by kind, written down between its steps."""

    id: int
    fence: int
    flight: Flight | None
    ledger: Ledger
    counts: dict[Kind, Counts] = field(default_factory=no_counts)
    #: What is wrong in the books: {"deliveries", "sends"}; None where they balance.
    unaccounted: dict[str, Any] | None = None
    #: Why it left something to the next pass; shown to people.
    left: str | None = None
    begun_at: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """
        Write down what was done so far, and go on only while this is the newest pass under its lock.

        Raises: FlightLost.
        """
        if self.flight is not None:
            self.flight.check()
        with self.ledger.autocommit() as connection:
            if not recovery.note_pass(connection, self.id, counts=self.as_json()):
                raise FlightLost

    def as_json(self) -> dict[str, dict[str, int]]:
        """The counts as the ledger keeps them."""
        return as_json(self.counts)


@contextmanager
def only_pass(ledger: Ledger, link: RedisLink, settings: Settings, *, worker: str) -> Iterator[RunningPass | None]:
    """
    Be the only pass for the block, and write it down; None where another runs.

    A pass that had to stop because another took over ends here without an error for the caller.
    """
    flight = SingleFlight(link, name=LOCK, lease_s=_LEASE_S, namespace=settings.redis_namespace)
    with ExitStack() as ends:
        held: Flight | None = None
        try:
            held = ends.enter_context(flight.hold())
            alone = held is not None
        except RedisUnavailable:
            alone = ends.enter_context(_postgres_lock(ledger))
        if not alone:
            yield None
            return
        with ledger.autocommit() as connection:
            id_, fence = recovery.begin_pass(connection, worker=worker, fence=held.fence if held else None)
        running = RunningPass(id_, fence, held, ledger)
        error = "ended by a fault; see the log"
        try:
            yield running
            error = running.left or ""
        except FlightLost:
            error = "stopped: another pass had begun"
            _log.warning("pass_overtaken", extra={"pass": id_, "fence": fence})
        except psycopg.Error as fault:
            error = f"ended by the ledger: {type(fault).__name__}"
            raise
        finally:
            _write_end(running, error)


@contextmanager
def _postgres_lock(ledger: Ledger) -> Iterator[bool]:
    with ledger.autocommit() as connection:
        if not recovery.try_lock(connection):
            yield False
            return
        try:
            yield True
        finally:
            if not connection.closed:
                recovery.unlock(connection)


def _write_end(running: RunningPass, error: str) -> None:
    try:
        with running.ledger.autocommit() as connection:
            recovery.end_pass(
                connection,
                running.id,
                counts=running.as_json(),
                error=error or None,
                unaccounted=running.unaccounted,
            )
    except psycopg.Error as fault:
        _log.warning("pass_end_not_written", extra={"pass": running.id, "error": type(fault).__name__})
