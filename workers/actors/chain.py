"""A chain: leases due batches of one channel of a send and works through them, window by window."""

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import dramatiq
import redis

from shared import log
from shared.coordination.guard import Entered, Held
from shared.coordination.redis import RedisUnavailable
from shared.domain.states import Channel, SendEventKind
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName, queue_for
from shared.ledger import batches, chains, deliveries, providers, send_events
from shared.ledger.chains import ChainKey, SendContent
from shared.ledger.db import POSTGRES_AWAY, Connection
from shared.ledger.deliveries import Claim, ClaimedDelivery
from shared.ledger.providers import Standing
from shared.recovery import holds
from workers.actors.render import RenderError, renderer
from workers.actors.senders import Sender, Senders, senders_of
from workers.actors.window import Window
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)
#: Seconds a chain waits for a free slot before it lets go; the due-work actor brings it back.
_SLOT_PATIENCE_S = 2.0
#: Seconds between the first windows of the chains of one send.
_STAGGER_S = 0.02
#: Seconds beyond the lease that a chain waits for Postgres to give back, and between two tries.
_END_PATIENCE_S = 15.0
_ASK_AGAIN_S = 0.5


@dataclass(slots=True)
class Chain:
    """
    One message's work. Each window: gate → circuit → slots → claim → call → record.

    It ends when nothing is due, when its provider is held back, when the send is stopped, when its queue is paused,
    when the process drains or loses its lease, or when its time is up and a successor is queued.
    """

    runtime: Runtime
    senders: Senders
    jobs: Jobs
    key: ChainKey
    token: UUID
    send: SendContent
    _worker: UUID = field(init=False)
    _held: dict[int, int] = field(default_factory=dict)
    _window: Window | None = None
    #: A claim whose commit was not heard of, and the provider it was for.
    _unheard: tuple[UUID, str] | None = None

    def run(self) -> None:
        """
        Work until there is a reason to stop, and give the batches back.

        After a fault of ours those that still owe something are set aside, or it would be met again at once: the
        reconciler frees them for want of progress, and after some recoveries gives them up. Others go on meanwhile.
        """
        self._worker = self.runtime.lease.worker
        stale = successor = False
        failed = True
        try:
            with self.runtime.ledger.autocommit() as connection:
                stale = not chains.begin(connection, self.key, token=self.token, worker=self._worker)
            if not stale:
                successor = self._work()
            failed = False
        except POSTGRES_AWAY:
            failed = False
            raise
        finally:
            if not stale:
                self._end(successor=successor, failed=failed)

    def _end(self, *, successor: bool, failed: bool) -> None:
        """
        Give everything back, waiting for a Postgres that is away: what is kept here would look held by the living.

        Should it stay away for longer than the lease, the lease is lost, and others free what it covered; as long
        as the lease holds, nobody else can.
        """
        patience = time.monotonic() + self.runtime.settings.lease_ms / 1000 + _END_PATIENCE_S
        while True:
            try:
                with self.runtime.ledger.autocommit() as connection:
                    if self._window is not None:
                        self._window.settle_unrecorded(connection)
                    if self._unheard is not None:
                        self._give_back(connection, *self._unheard)
                    if failed:
                        batches.set_aside(connection, self.key, worker=self._worker)
                    batches.release(connection, self.key, worker=self._worker, token=self.token)
                    if self.runtime.draining:
                        name = self.runtime.lease.name
                        send_events.note(connection, self.send.id, SendEventKind.DRAINED, worker=name)
                    if not successor:
                        chains.end(connection, self.key, token=self.token)
                        chains.complete(connection, self.send.id)
            except POSTGRES_AWAY:
                lost = time.monotonic() > patience and not self.runtime.lease.holds(self._worker)
                if lost or self.runtime.must_cut:
                    raise
                self.runtime.wait_draining(_ASK_AGAIN_S)
            else:
                return

    def _give_back(self, connection: Connection, claim_id: UUID, provider: str) -> None:
        """Nobody was called under a claim that may or may not have been committed."""
        back = deliveries.give_back_claim(
            connection, send_id=self.send.id, channel=self.key.channel, claim=claim_id, provider=provider
        )
        _log.info("claim_given_back", extra={"deliveries": back})

    def _work(self) -> bool:
        """Make windows; True when a successor goes on."""
        sender = self.senders.sender(self.key.channel, self.send.mode)
        try:
            render = renderer(self.send, self.key.channel, default_sender=self.runtime.settings.email_from)
        except RenderError as error:
            with self.runtime.ledger.autocommit() as connection:
                chains.pause(connection, self.send.id, reason=str(error))
            return False
        # Chains that start together would compute together and wait together: they share one interpreter.
        self.runtime.wait_draining(self.key.chain_no * _STAGGER_S)
        until = time.monotonic() + self.runtime.settings.chain_budget_ms / 1000
        while True:
            if self.runtime.draining or (time.monotonic() >= until and not self._paused):
                if self._hand_over():
                    return True
                until = time.monotonic() + self.runtime.settings.chain_budget_ms / 1000
            if self.runtime.draining or self._paused or not self.runtime.lease.holds(self._worker):
                return False
            entered = self._enter(sender)
            if entered is None:
                return False
            try:
                claim_id = uuid4()
                self._unheard = (claim_id, sender.provider.name)
                rows, standing = self._claim(sender, claim_id, limit=entered.slots)
                self._unheard = None
                if standing.hold is not None:
                    _log.info("chain_held", extra={"reason": "hold"})
                    with suppress(RedisUnavailable):  # which forgot it, or is away: nobody else need come here
                        holds.tell(sender.guards.circuit, standing.hold)
                if not rows:
                    return False
                claim = Claim(self.send.id, self.key.channel, claim_id, rows[0].attempt_at, sender.provider.name)
                self._window = Window(self.runtime, self._worker, sender, entered, self.send, claim, render, standing)
                self._window.run(rows)
                self._window = None
            finally:
                sender.guards.leave(entered)

    @property
    def _paused(self) -> bool:
        return queue_for(self.key.channel, self.send.lane) in self.jobs.broker.paused

    def _enter(self, sender: Sender) -> Entered | None:
        """
        Ask to make calls; None where this chain has to end, because others are to wait for what holds it.

        While Redis is away nobody could tell a chain that ended to come back: it waits here, and keeps its thread.
        """
        asked_at = time.monotonic()
        # Not more slots than there are rows: others may be waiting for them.
        most = self.runtime.settings.window_max
        want = min(most, self.send.accepted.get(self.key.channel.value, most))
        while True:
            entered = sender.guards.enter(self.send.lane, want)
            waited_s = time.monotonic() - asked_at
            if isinstance(entered, Entered):
                sender.guards.waited(waited_s)
                return entered
            if entered.alone:
                if self._paused or not self.runtime.lease.holds(self._worker):
                    return None
            elif entered.reason != "cap" or waited_s > _SLOT_PATIENCE_S:
                if entered.reason == "cap":
                    sender.guards.waited(waited_s)
                self._say_held(entered)
                return None
            if self.runtime.wait_draining(min(entered.retry_in_s, _SLOT_PATIENCE_S)):
                return None

    def _claim(self, sender: Sender, claim_id: UUID, *, limit: int) -> tuple[list[ClaimedDelivery], Standing]:
        """
        Give back what is spent, hold enough for `limit` calls, claim them: one transaction, one wait for the disk.

        Nothing is claimed for a provider that a person holds, whatever Redis says of it.
        Its commit also makes the outcomes of the window before durable (see `deliveries.record`).
        """
        provider = sender.provider
        with self.runtime.ledger.transaction() as connection:
            standing = providers.standing(
                connection,
                provider=provider.name,
                credential=provider.credential,
                unbroken_s=sender.policy.unbroken_s,
            )
            if standing.hold is not None:
                return [], standing
            spent = [batch_no for batch_no, left in self._held.items() if left <= 0]
            if spent:
                batches.release(connection, self.key, worker=self._worker, batches=spent, token=self.token)
            held = {batch_no: left for batch_no, left in self._held.items() if left > 0}
            missing = limit - sum(held.values())
            if missing > 0:
                wanted = -(-missing // self.runtime.settings.batch_size)
                for batch in batches.lease(connection, self.key, worker=self._worker, limit=wanted, token=self.token):
                    held[batch.batch_no] = batch.waiting
            rows = []
            if held:
                rows = deliveries.claim_window(
                    connection,
                    send_id=self.send.id,
                    channel=self.key.channel,
                    worker=self._worker,
                    batches=list(held),
                    claim=claim_id,
                    limit=limit,
                    provider=provider.name,
                    credential=provider.credential,
                )
        for row in rows:
            held[row.batch_no] -= 1
        if len(rows) < limit:
            held = dict.fromkeys(held, 0)  # whatever else these batches owe is not due yet
        self._held = held
        return rows, standing

    def _hand_over(self) -> bool:
        """
        Queue a successor behind whoever waits; False when Redis is away and this chain must go on itself.

        Batches go back first, so that the successor, or any other chain, may take them at once.
        """
        new_token = uuid4()
        with self.runtime.ledger.transaction() as connection:
            batches.release(connection, self.key, worker=self._worker, token=self.token)
            self._held = {}
            if not chains.hand_over(connection, self.key, token=self.token, new_token=new_token, worker=self._worker):
                return True
        try:
            self.jobs.work_chain(
                queue=queue_for(self.key.channel, self.send.lane),
                send_id=self.send.id,
                channel=self.key.channel,
                chain_no=self.key.chain_no,
                token=new_token,
            )
        except redis.RedisError:
            _log.warning("chain_not_handed_over")
            if self.runtime.draining:
                return True
            self.token = new_token
            with self.runtime.ledger.autocommit() as connection:
                return not chains.keep(connection, self.key, token=new_token, worker=self._worker)
        return True

    def _say_held(self, held: Held) -> None:
        _log.info("chain_held", extra={"reason": held.reason, "retry_in_s": round(held.retry_in_s, 3)})


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor; its messages travel on the queue of their channel and lane."""
    senders = senders_of(runtime)
    jobs = Jobs(broker)

    @dramatiq.actor(broker=broker, actor_name=JobName.WORK_CHAIN.value, queue_name=QueueName.EMAIL.value)
    def work_chain(*, v: int, send_id: str, channel: str, chain_no: int, token: str) -> None:
        if v != MESSAGE_VERSION or runtime.draining:
            return  # the ledger still has the chain: the due-work actor finds its message gone
        key = ChainKey(UUID(send_id), Channel(channel), chain_no)
        with log.bind(send_id=send_id, channel=channel, chain_no=chain_no):
            try:
                with runtime.ledger.autocommit() as connection:
                    send = chains.load_send(connection, key.send_id)
                if send is None:
                    _log.warning("send_unknown")
                    return
                Chain(runtime, senders, jobs, key, UUID(token), send).run()
            except POSTGRES_AWAY as error:
                # The ledger is away, not the work: the due-work actor starts the chain again.
                _log.warning("chain_stopped_without_postgres", extra={"error": type(error).__name__})
