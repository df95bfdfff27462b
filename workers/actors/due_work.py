"""
Due work, found in Postgres every few seconds: timers, lost messages, dead holders, sweeps, finished sends.

Level-triggered: each step looks for what is so now, never for what happened since the last look, so a tick
that is lost, late or doubled changes nothing.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from uuid import UUID

import dramatiq
import psycopg

from shared.coordination.guard import Guards
from shared.coordination.queue_depth import Queues
from shared.coordination.redis import RedisUnavailable
from shared.domain.states import Channel, DeliveryStatus, Mode
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName, queue_for
from shared.ledger import batches, chains
from shared.ledger.chains import ChainKey, ChainState, DueSend
from shared.ledger.db import POSTGRES_AWAY
from workers.actors.ingest import chains_worth_starting, ingest_send, start_chain
from workers.actors.senders import Senders
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)

#: Sends looked at in one statement, and things of one kind settled in one tick: a tick stays below a second.
_PAGE = 500
_PER_TICK = 1_000
#: Batches swept in one transaction (25,000 deliveries with the default BATCH_SIZE).
_SWEEP_BATCHES = 1_000
#: Seconds a chain's message may be missing from Redis: between its commit and its enqueueing.
_ENQUEUE_GRACE_S = 5.0
_FIRST = UUID(int=0)


class DueWork:
    """One tick's work, in steps that do not depend on each other: one that fails is logged, the rest go on."""

    def __init__(self, runtime: Runtime, senders: Senders, jobs: Jobs) -> None:
        self._runtime = runtime
        self._senders = senders
        self._jobs = jobs
        self._queues = Queues(runtime.link, namespace=f"{runtime.settings.redis_namespace}:broker")

    def run(self) -> None:
        """Do every step once."""
        steps: list[Callable[[], object]] = [
            self.start_scheduled,
            self.pick_up_waiting,
            self.free_abandoned,
            self.sweep_stopped,
            self.finish,
            self.start_chains,
        ]
        for step in steps:
            if self._runtime.draining:
                return
            try:
                step()
            except (*POSTGRES_AWAY, RedisUnavailable) as error:
                _log.warning("due_work_step_failed", extra={"step": step.__name__, "error": type(error).__name__})
            except psycopg.Error:
                # One send that breaks a constraint must not keep every other send from its chains.
                _log.exception("due_work_step_broken", extra={"step": step.__name__})

    def start_scheduled(self) -> None:
        """Scheduled sends whose time has come; their chains are started by the last step."""
        with self._runtime.ledger.autocommit() as connection:
            for send_id in chains.start_scheduled(connection):
                _log.info("send_started", extra={"send_id": str(send_id)})

    def pick_up_waiting(self) -> None:
        """Accepted sends whose ingest message was never sent, or was lost."""
        settings = self._runtime.settings
        with self._runtime.ledger.autocommit() as connection:
            waiting = chains.find_waiting(
                connection,
                pending_s=settings.delivery_reconcile_pending_stale_ms / 1000,
                queued_s=settings.delivery_reconcile_stale_ms / 1000,
                limit=_PER_TICK,
            )
        for send_id in waiting:
            _log.info("send_picked_up", extra={"send_id": str(send_id)})
            ingest_send(self._runtime, self._jobs, send_id)

    def free_abandoned(self) -> None:
        """Batches of dead processes: calls in flight become unsure, the rest is due again."""
        with self._runtime.ledger.autocommit() as connection:
            for batch in batches.find_abandoned(connection, limit=_PER_TICK):
                parked = batches.free_abandoned(connection, batch)
                if parked is not None:
                    _log.warning(
                        "batch_freed",
                        extra={"send_id": str(batch.send_id), "batch_no": batch.batch_no, "unsure": parked},
                    )

    def sweep_stopped(self) -> None:
        """What cancelled and expired sends still owe, a bounded number of batches per send and tick."""
        with self._runtime.ledger.autocommit() as connection:
            stopped = batches.find_to_sweep(connection, limit=_PAGE)
        for send_id, status in stopped:
            with self._runtime.ledger.transaction() as connection:
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

    def start_chains(self) -> None:
        """A chain for every channel of a send with due batches, unless its provider is held back."""
        after, after_channel = _FIRST, Channel.SMS
        open_now: dict[tuple[Channel, Mode], bool] = {}
        while True:
            with self._runtime.ledger.autocommit() as connection:
                due = chains.find_due(
                    connection, after=after, after_channel=after_channel, most=self._most(), limit=_PAGE
                )
                states = chains.find(connection, list({item.send_id for item in due}))
            if not due:
                return
            known = defaultdict(list)
            for state in states:
                known[state.key.send_id, state.key.channel].append(state)
            there = self._still_queued(states, {item.send_id: item for item in due})
            for item in due:
                way = (item.channel, item.mode)
                if way not in open_now:
                    open_now[way] = not _held_back(self._senders.sender(*way).guards)
                if open_now[way]:
                    self._start_missing(item, known[item.send_id, item.channel], there)
            if len(due) < _PAGE or self._runtime.draining:
                return
            after, after_channel = due[-1].send_id, due[-1].channel

    def _most(self) -> int:
        settings = self._runtime.settings
        return -(-settings.chains_per_send * settings.window_max // settings.batch_size)

    def _still_queued(self, states: list[ChainState], due: dict[UUID, DueSend]) -> set[str]:
        """Tokens of waiting chains whose messages Redis still has."""
        waiting = [
            (queue_for(state.key.channel, due[state.key.send_id].lane).value, str(state.token))
            for state in states
            if not state.running and state.key.send_id in due
        ]
        return {token for _, token in self._queues.existing(waiting)}

    def _start_missing(self, item: DueSend, states: list[ChainState], there: set[str]) -> None:
        live = {
            state.key.chain_no
            for state in states
            if state.holder_lives
            or (not state.running and (state.queued_s < _ENQUEUE_GRACE_S or str(state.token) in there))
        }
        tokens = {state.key.chain_no: state.token for state in states}
        wanted = chains_worth_starting(self._runtime.settings, lane=item.lane, due_batches=item.batches)
        for chain_no in range(self._runtime.settings.chains_per_send):
            if len(live) >= wanted:
                return
            if chain_no not in live:
                live.add(chain_no)
                key = ChainKey(item.send_id, item.channel, chain_no)
                start_chain(self._runtime, self._jobs, key, lane=item.lane, old_token=tokens.get(chain_no))


def _held_back(guards: Guards) -> bool:
    """Whether a chain would be turned away now; without Redis nobody is: each process has its share."""
    try:
        if guards.gate.closed_for_s() > 0:
            return True
        circuit = guards.circuit.snapshot()
    except RedisUnavailable:
        return False
    if circuit.hold is not None:
        return True
    return circuit.next_probe_in_s is not None and circuit.next_probe_in_s > 0


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    work = DueWork(runtime, Senders(runtime), Jobs(broker))

    @dramatiq.actor(broker=broker, actor_name=JobName.DUE_WORK.value, queue_name=QueueName.OPS.value)
    def due_work(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v == MESSAGE_VERSION:
            work.run()
