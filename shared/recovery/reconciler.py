"""
The reconciler: compares what the ledger says is owed with what is being done about it, and rebuilds what is missing.

Level-triggered: each step looks for what is so now. A job that lives is left alone: a holder that records, a message
that Redis still has, a wait for a provider. What was recovered too often without progress is given up, so that a
send always ends. Tenants take turns, chunks are small, and a pass ends before the next one is due.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy

import psycopg
import redis

from shared.accounts import credential_of, provider_name
from shared.coordination.queue_depth import Queues
from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.domain.ids import id_of_age
from shared.domain.signature import failure_signature
from shared.domain.states import Channel, DeliveryStatus, Mode, SendEventKind
from shared.jobs import Jobs, QueueName
from shared.ledger import batches, books, chains, deliveries, providers, recovery, send_events
from shared.ledger.batches import HUNG, NOBODY, AbandonedBatch
from shared.ledger.db import POSTGRES_AWAY, ROW_BROKEN, Connection, Ledger
from shared.ledger.recovery import Outage, StuckBatch, T, Verdict
from shared.recovery.fan_out import FanOuts
from shared.recovery.passes import RunningPass, kind_of_work, only_pass
from shared.recovery.starting import ChainStarter
from shared.recovery.waits import Waits, retry_policy
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Things a finder gives at once, and things changed in one transaction: locks last some 50 ms.
_PAGE = 1_000
_CHUNK = 100
#: Seconds; the books of sends accepted within them are checked by each pass, beside those in progress.
_BOOKS_S = 24 * 3600.0
#: Share of the interval that a pass may take; the rest of what is stuck waits for the next one.
_SHARE_OF_INTERVAL = 0.8
_NO_REDIS = "Redis was away: no message could be enqueued"
#: Whose answer a settlement without a call is.
_US = "tidings"


class Reconciler:
    """
    Runs passes for one process.

    `stop` asks whether to end early, as a draining worker does. `first_look_s`: by provider, the seconds after which
    it is first asked about a call whose outcome nobody knows; a call to another is parked for a person at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        link: RedisLink,
        jobs: Jobs,
        settings: Settings,
        *,
        worker: str,
        first_look_s: Mapping[str, float],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ledger = ledger
        self._link = link
        self._jobs = jobs
        self._settings = settings
        self._worker = worker
        self._first_look_s = first_look_s
        self._stop = stop
        self._stale_s = settings.delivery_reconcile_stale_ms / 1000
        self._queues = Queues(link, namespace=f"{settings.redis_namespace}:broker")
        self._fan_outs = FanOuts(self._queues, jobs)

    def run_pass(self) -> RunningPass | None:
        """
        Do every step once; the pass with its counts, None where another is running.

        Raises: what psycopg raises when the ledger goes away; the pass then shows without its end.
        """
        with only_pass(self._ledger, self._link, self._settings, worker=self._worker) as running:
            if running is None:
                return None
            steps = (
                self._mend_queues,
                self._take_sends_further,
                self._free_batches,
                self._give_up,
                self._end_outages,
                self._start_chains,
                self._check_books,
            )
            for step in steps:
                self._do(step, running)
                running.check()
            if not self._link.reachable:
                running.left = _NO_REDIS
        _log.info("pass_done", extra={"pass": running.id, "fence": running.fence, "left": running.left or ""})
        return running

    def _do(self, step: Callable[[RunningPass], None], running: RunningPass) -> None:
        try:
            step(running)
        except POSTGRES_AWAY:
            raise
        except psycopg.Error:
            # What one batch breaks must not keep every other kind from its recovery.
            running.left = f"{step.__name__.strip('_')} met a fault; see the log"
            _log.exception("pass_step_broken", extra={"step": step.__name__, "pass": running.id})
        except (RedisUnavailable, redis.RedisError) as error:
            running.left = _NO_REDIS
            _log.warning("pass_without_redis", extra={"step": step.__name__, "error": type(error).__name__})

    def _mend_queues(self, running: RunningPass) -> None:  # noqa: ARG002  # a step like the others
        """A message that is there proves that its work is under way: so what nobody would fetch is put back first."""
        for queue in QueueName:
            back = self._queues.mend(queue.value)
            if back:
                _log.warning("messages_put_back", extra={"queue": queue.value, "messages": back})

    def _take_sends_further(self, running: RunningPass) -> None:
        """Pending and resumed sends get their ingest message again, overdue scheduled ones begin."""
        pending_s = self._settings.delivery_reconcile_pending_stale_ms / 1000
        with self._ledger.autocommit() as connection:
            found = recovery.stuck_sends(connection, pending_s=pending_s, stale_s=self._stale_s, page=_PAGE)
            for chunk in self._chunks(found, running):
                waiting = [stuck for stuck in chunk if stuck.kind != "scheduled"]
                for stuck in chunk:
                    if stuck.kind == "scheduled":
                        running.counts["scheduled"].found += 1
                        running.counts["scheduled"].retried += recovery.start_overdue(connection, stuck.send_id)
                asked = self._fan_outs.ask_again(waiting, running.counts)
                send_events.note_all(connection, asked, SendEventKind.MESSAGE_LOST)

    def _free_batches(self, running: RunningPass) -> None:
        """Batches of the dead, and of the living that record nothing: calls in flight are unsure, the rest is due."""
        with self._ledger.autocommit() as connection:
            for send_id, batch_no in recovery.mend(connection, limit=_PAGE):
                _log.warning("batch_mended", extra={"send_id": str(send_id), "batch_no": batch_no})
            found = recovery.stuck_batches(connection, stale_s=self._stale_s, page=_PAGE)
            for chunk in self._chunks(found, running):
                self._in_one_transaction(chunk, running, self._free)

    def _free(self, connection: Connection, batch: StuckBatch, running: RunningPass) -> None:
        counts = running.counts[kind_of_work(batch.lane)]
        holder, loss = batch.holder or NOBODY, None
        if batch.holder_lives:
            if not recovery.take_stalled(connection, batch, stale_s=self._stale_s):
                return
            _log.warning(
                "batch_taken",
                extra={"send_id": str(batch.send_id), "batch_no": batch.batch_no, "worker": str(holder)},
            )
            holder, loss = NOBODY, HUNG
        lost = AbandonedBatch(batch.send_id, batch.batch_no, holder, batch.lane)
        if batches.free_abandoned(connection, lost, first_look_s=self._first_look_s, loss=loss) is not None:
            counts.found += 1
            counts.retried += 1

    def _give_up(self, running: RunningPass) -> None:
        """What batches still owe that were recovered too often without any progress is failed, and their sends end."""
        most = self._settings.delivery_reconcile_max_attempts
        detail = f"given up: recovered {most} times without progress (DELIVERY_RECONCILE_MAX_ATTEMPTS)"
        with self._ledger.autocommit() as connection:
            found = recovery.spent_batches(connection, most=most, page=_PAGE)
            self._settle(found, running, DeliveryStatus.FAILED, "recovery_given_up", detail, recovered_more_than=most)

    def _end_outages(self, running: RunningPass) -> None:
        """What a provider that takes nothing has kept waiting for too long is dead-lettered, tried or never tried."""
        hours = self._settings.max_outage_wait_hours
        detail = f"the provider took nothing for {hours} h (MAX_OUTAGE_WAIT_HOURS)"
        waits = Waits(self._link, self._settings)
        for channel in Channel:
            for mode in Mode:
                if waits.reason(channel, mode) not in ("circuit", "isolated", "gate"):
                    continue  # a person's hold ends by a person, a full cap by itself
                with self._ledger.autocommit() as connection:
                    outage = self._outage(connection, channel, mode)
                    if outage is None:
                        continue
                    found = recovery.waited_out_batches(
                        connection, outage, channel=channel, mode=mode, wait_s=hours * 3600.0, page=_PAGE
                    )
                    self._settle(
                        found, running, DeliveryStatus.DEAD_LETTERED, "outage_waited_out", detail, outage=outage
                    )

    def _outage(self, connection: Connection, channel: Channel, mode: Mode) -> Outage | None:
        """What the ledger has seen of it: Redis only says that calls are kept back, perhaps since a moment ago."""
        name = provider_name(self._settings, channel, mode)
        account = credential_of(self._settings, name)
        unbroken_s = retry_policy(self._settings, channel).unbroken_s
        standing = providers.standing(connection, provider=name, credential=account, unbroken_s=unbroken_s)
        return None if standing.outage_since is None else Outage(name, account, standing.outage_since)

    def _settle(
        self,
        found: Iterator[StuckBatch],
        running: RunningPass,
        became: DeliveryStatus,
        outcome: str,
        detail: str,
        *,
        recovered_more_than: int | None = None,
        outage: Outage | None = None,
    ) -> None:
        def settle(connection: Connection, batch: StuckBatch, running: RunningPass) -> None:
            signature = failure_signature(
                channel=batch.channel.value, provider=_US, outcome_class=outcome, code=outcome, detail=detail
            )
            verdict = Verdict(became, outcome, detail, _US, signature)
            rows = recovery.settle_unsent(
                connection, batch, verdict, recovered_more_than=recovered_more_than, outage=outage
            )
            if rows:
                deliveries.note_failure_group(
                    connection, signature, channel=batch.channel, provider=_US, outcome=outcome
                )
                running.counts[kind_of_work(batch.lane)].found += 1
                running.counts[kind_of_work(batch.lane)].given_up += 1
                _log.warning(
                    outcome, extra={"send_id": str(batch.send_id), "batch_no": batch.batch_no, "deliveries": rows}
                )

        for chunk in self._chunks(found, running):
            self._in_one_transaction(chunk, running, settle)
            with self._ledger.autocommit() as connection:
                for send_id in {batch.send_id for batch in chunk}:
                    chains.complete(connection, send_id)

    def _start_chains(self, running: RunningPass) -> None:
        """Chains whose message or holder is gone, and those of what was freed a moment ago."""
        starter = ChainStarter(self._ledger, self._queues, self._jobs, self._settings)
        until = running.begun_at + _SHARE_OF_INTERVAL * self._settings.delivery_reconcile_interval_ms / 1000
        waits = Waits(self._link, self._settings)
        for started in starter.start_missing(waits, stop=lambda: self._stop() or time.monotonic() > until):
            if started.rebuilt:
                counts = running.counts[kind_of_work(started.lane)]
                counts.found += 1
                counts.requeued += 1

    def _check_books(self, running: RunningPass) -> None:
        """What changes is compared with what was accepted; a difference is a fault of ours, and nothing mends it."""
        with self._ledger.autocommit() as connection:
            found = books.sends_out_of_balance(connection, since_id=id_of_age(_BOOKS_S), limit=_PAGE)
        if found:
            sends = sorted({str(each.send_id) for each in found})
            missing = sum(abs(each.accepted - each.counted) for each in found)
            running.unaccounted = {"deliveries": missing, "sends": sends[:10]}
            _log.error("books_out_of_balance", extra={"deliveries": missing, "sends": sends[:10]})

    def _in_one_transaction(
        self,
        chunk: list[StuckBatch],
        running: RunningPass,
        change: Callable[[Connection, StuckBatch, RunningPass], None],
    ) -> None:
        """Change a chunk in one transaction, in the order everybody locks batches in; after a fault one by one."""
        before = deepcopy(running.counts)
        try:
            with self._ledger.transaction() as connection:
                for batch in sorted(chunk, key=lambda batch: (batch.send_id, batch.batch_no)):
                    change(connection, batch, running)
        except ROW_BROKEN:
            running.counts = before
            if len(chunk) > 1:
                for batch in chunk:
                    self._in_one_transaction([batch], running, change)
                return
            _log.exception(
                "batch_not_recovered", extra={"send_id": str(chunk[0].send_id), "batch_no": chunk[0].batch_no}
            )

    def _chunks(self, found: Iterable[T], running: RunningPass) -> Iterator[list[T]]:
        """Give what was found in chunks; between two the pass is written down, or ends when its time is up."""
        until = running.begun_at + _SHARE_OF_INTERVAL * self._settings.delivery_reconcile_interval_ms / 1000
        chunk: list[T] = []
        for stuck in found:
            chunk.append(stuck)
            if len(chunk) == _CHUNK:
                yield chunk
                chunk = []
                running.check()
                if time.monotonic() > until or self._stop():
                    running.left = "its time was up: the rest is for the next pass"
                    return
        if chunk:
            yield chunk
