"""
Due work, found in Postgres every few seconds: timers, lost chains, dead holders, sweeps, finished sends. What takes
longer to be sure of is the reconciler's.

Level-triggered: each step looks for what is so now, never for what happened since the last look, so a tick
that is lost, late or doubled changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from uuid import UUID

import dramatiq
import psycopg
import redis

from shared.accounts import first_looks_s
from shared.coordination.queue_depth import Queues
from shared.coordination.redis import RedisUnavailable
from shared.domain.states import DeliveryStatus, SendEventKind
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName
from shared.ledger import batches, cancelling, chains, operation_results, operations, recovery, send_events
from shared.ledger.db import POSTGRES_AWAY, ROW_BROKEN
from shared.recovery.fan_out import FanOuts
from shared.recovery.holds import Holds
from shared.recovery.passes import as_json, kind_of_work, no_counts
from shared.recovery.starting import ChainStarter
from shared.recovery.waits import Waits
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)

#: Sends looked at in one statement, and things of one kind settled in one tick: a tick stays below a second.
_PAGE = 500
_PER_TICK = 1_000
#: Batches swept in one transaction (25,000 deliveries with the default BATCH_SIZE).
_SWEEP_BATCHES = 1_000


class UnderWay:
    """
    The steps that ticks of this process are at.

    One that takes longer than the time between two ticks goes through all there is: others leave it to that, and the
    process's threads to other work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: set[str] = set()

    @contextmanager
    def alone(self, step: str) -> Iterator[bool]:
        """Be the only one at a step for the block; False where another is."""
        with self._lock:
            is_alone = step not in self._steps
            self._steps.add(step)
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._lock:
                    self._steps.discard(step)


class DueWork:
    """One tick's work, in steps that do not depend on each other: one that fails is logged, the rest go on."""

    def __init__(self, runtime: Runtime, jobs: Jobs, under_way: UnderWay) -> None:
        self._runtime = runtime
        self._jobs = jobs
        self._under_way = under_way
        queues = Queues(runtime.link, namespace=f"{runtime.settings.redis_namespace}:broker")
        self._chains = ChainStarter(runtime.ledger, queues, jobs, runtime.settings)
        self._fan_outs = FanOuts(queues, jobs)
        self._holds = Holds(runtime.ledger.transaction, runtime.link, runtime.settings)

        self._counts = no_counts()
        self._begun_at = time.monotonic()

    def run(self) -> None:
        """Do every step once, and write down what was recovered."""
        try:
            self._do_steps()
        finally:
            self._note()

    def _do_steps(self) -> None:
        steps: list[Callable[[], object]] = [
            self.mirror_holds,
            self.fan_out_again,
            self.start_scheduled,
            self.free_abandoned,
            self.finish_cancels,
            self.sweep_stopped,
            self.finish,
            self.start_chains,
            self.move_operations,
        ]
        for step in steps:
            if self._runtime.draining:
                return
            try:
                with self._under_way.alone(step.__name__) as is_alone:
                    if is_alone:
                        step()
            except (*POSTGRES_AWAY, RedisUnavailable, redis.RedisError) as error:
                _log.warning("due_work_step_failed", extra={"step": step.__name__, "error": type(error).__name__})
            except psycopg.Error:
                # One send that breaks a constraint must not keep every other send from its chains.
                _log.exception("due_work_step_broken", extra={"step": step.__name__})

    def _note(self) -> None:
        """People see among the reconciler's passes what it did not have to do."""
        counts = as_json(self._counts)
        if counts:
            with suppress(*POSTGRES_AWAY), self._runtime.ledger.autocommit() as connection:
                took_s = time.monotonic() - self._begun_at
                recovery.note_tick(connection, worker=self._runtime.lease.name, took_s=took_s, counts=counts)

    def mirror_holds(self) -> None:
        """Redis may have forgotten an operator's hold, or not have heard of its end."""
        self._holds.mirror()

    def fan_out_again(self) -> None:
        """Sends that were accepted a while ago and are still pending: their message is lost, or was never enqueued."""
        settings = self._runtime.settings
        pending_s, stale_s = (
            ms / 1000 for ms in (settings.delivery_reconcile_pending_stale_ms, settings.delivery_reconcile_stale_ms)
        )
        with self._runtime.ledger.autocommit() as connection:
            found = recovery.stuck_sends(connection, pending_s=pending_s, stale_s=stale_s, page=_PAGE)
            pending = [stuck for stuck in islice(found, _PAGE) if stuck.kind == "pending"]
        asked = self._fan_outs.ask_again(pending, self._counts)
        if asked:
            with self._runtime.ledger.autocommit() as connection:
                send_events.note_all(connection, asked, SendEventKind.MESSAGE_LOST)

    def start_scheduled(self) -> None:
        """Scheduled sends whose time has come; their chains are started by the last step."""
        with self._runtime.ledger.autocommit() as connection:
            for send_id in chains.start_scheduled(connection):
                self._runtime.doorbell.ring("sends", "channels")
                _log.info("send_started", extra={"send_id": str(send_id)})

    def free_abandoned(self) -> None:
        """Batches of dead processes: calls in flight become unsure, the rest is due again."""
        looks = first_looks_s(self._runtime.settings)
        with self._runtime.ledger.autocommit() as connection:
            for batch in batches.find_abandoned(connection, limit=_PER_TICK):
                parked: int | None = None
                with _alone("free_abandoned", batch.send_id):
                    parked = batches.free_abandoned(connection, batch, first_look_s=looks)
                if parked is not None:
                    counts = self._counts[kind_of_work(batch.lane)]
                    counts.found += 1
                    counts.retried += 1
                    self._runtime.doorbell.ring("recovery", "sends")
                    _log.warning(
                        "batch_freed",
                        extra={"send_id": str(batch.send_id), "batch_no": batch.batch_no, "unsure": parked},
                    )

    def finish_cancels(self) -> None:
        """Sends that a person cancelled, and did not undo that in time."""
        with self._runtime.ledger.transaction() as connection:
            for send_id in cancelling.finish(connection, limit=_PAGE):
                self._runtime.doorbell.ring("sends", "channels", "send_figures", "send_events")
                _log.info("send_cancelled", extra={"send_id": str(send_id)})

    def sweep_stopped(self) -> None:
        """What cancelled and expired sends still owe, a bounded number of batches per send and tick."""
        with self._runtime.ledger.autocommit() as connection:
            stopped = batches.find_to_sweep(connection, limit=_PAGE)
        if stopped:
            self._runtime.doorbell.ring("sends", "channels")
        for send_id, status in stopped:
            with _alone("sweep_stopped", send_id), self._runtime.ledger.transaction() as connection:
                if status is DeliveryStatus.EXPIRED:
                    batches.begin_expired(connection, send_id)
                batches.sweep(connection, send_id=send_id, status=status, limit=_SWEEP_BATCHES)
                if status is DeliveryStatus.CANCELLED:
                    batches.close_cancelled(connection, send_id)

    def finish(self) -> None:
        """Sends in progress with nothing open."""
        with self._runtime.ledger.autocommit() as connection:
            for send_id in chains.find_finished(connection, limit=_PER_TICK):
                chains.complete(connection, send_id)
                self._runtime.doorbell.ring("sends")

    def start_chains(self) -> None:
        """A chain for every channel of a send with due batches, unless its provider is held back."""
        waits = Waits(self._runtime.link, self._runtime.settings)
        for started in self._chains.start_missing(waits, stop=lambda: self._runtime.draining):
            if started.rebuilt:
                counts = self._counts[kind_of_work(started.lane)]
                counts.found += 1
                counts.requeued += 1

    def move_operations(self) -> None:
        """A message for the operations of people, where one should be moving with no worker at it, or be counted."""
        with self._runtime.ledger.autocommit() as connection:
            waiting = operations.is_any_waiting(connection) or operation_results.to_count(connection, limit=1)
        if waiting:
            try:
                self._jobs.periodic(JobName.OPERATE, slot=0)
            except redis.RedisError as error:
                _log.warning("operation_not_enqueued", extra={"error": type(error).__name__})


@contextmanager
def _alone(step: str, send_id: UUID) -> Iterator[None]:
    """One send that breaks a constraint is logged, and keeps no other from this step."""
    try:
        yield
    except ROW_BROKEN:
        _log.exception("due_work_step_broken", extra={"step": step, "send_id": str(send_id)})


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    jobs, under_way = Jobs(broker), UnderWay()

    @dramatiq.actor(broker=broker, actor_name=JobName.DUE_WORK.value, queue_name=QueueName.OPS.value)
    def due_work(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v == MESSAGE_VERSION:
            DueWork(runtime, jobs, under_way).run()
