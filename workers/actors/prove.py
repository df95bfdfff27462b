"""
Proving: deliveries whose outcome nobody knows are looked up at their provider, and settled by what it says.

Level-triggered like all periodic work: it looks for what is due now. Rows are taken under their batch's lock and the
next look is written down before the call, so that two provers do not look at the same row, and one that dies leaves
its rows to the next. No transaction is open while a provider is asked.
"""

import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import dramatiq

from shared.accounts import resolution_of
from shared.coordination.circuit import Probe
from shared.coordination.guard import Entered
from shared.domain.proof import ACCOUNT_PATIENCE_S, Asked, Pending, Proof, Unprovable, Verdict, judge, was_asked
from shared.domain.states import Channel, Lane
from shared.jobs import MESSAGE_VERSION, Broker, JobName, QueueName
from shared.ledger import chains, proofs, providers, receipts
from shared.ledger.chains import SendContent
from shared.ledger.clock import LedgerClock, ledger_now
from shared.ledger.db import POSTGRES_AWAY, ROW_BROKEN
from shared.ledger.proofs import ProvedBatch
from workers.actors.render import RenderError, renderer
from workers.actors.senders import Sender, Senders, senders_of
from workers.actors.verdicts import Case, record_verdicts
from workers.middleware.runtime import Runtime
from workers.providers.protocol import PROVE_S, Message

_log = logging.getLogger(__name__)

#: seconds for which rows are kept from other provers: a look, with time to record it.
_HOLD_S = 2 * PROVE_S + 30.0
#: batches whose rows are asked about together, rows taken of one of them, and rows asked about together.
_BATCHES = 20
_ROWS = 100
#: seconds after which a run leaves the rest to the next one.
_RUN_S = 20.0
#: seconds between two looks of rows that wait for something of ours: a slot, an open circuit, settings.
_SOON_S = 5.0
_SETTINGS_S = 60.0


class Prover:
    """One process's prover; a run that finds another in this process under way leaves everything to it."""

    def __init__(self, runtime: Runtime, senders: Senders) -> None:
        self._runtime = runtime
        self._senders = senders
        self._running = threading.Lock()

    def run(self) -> None:
        """Look at what is due, in rounds, until nothing is or the time is up; a thread is never held for long."""
        if not self._running.acquire(blocking=False):
            return
        try:
            until = time.monotonic() + _RUN_S
            self._apply_receipts()
            while not self._runtime.draining and time.monotonic() < until and self._look():
                pass
        finally:
            self._running.release()

    def _apply_receipts(self) -> None:
        """Reports that came before our own record of the call."""
        after = 0
        while True:
            with self._runtime.ledger.autocommit() as connection:
                waiting = receipts.find_waiting(connection, after=after, limit=_ROWS)
                for receipt in waiting:
                    try:
                        receipts.apply(connection, receipt)
                    except ROW_BROKEN:
                        _log.exception("receipt_not_applied", extra={"send_id": str(receipt.send_id)})
            if len(waiting) < _ROWS or self._runtime.draining:
                return
            after = waiting[-1].id

    def _look(self) -> bool:
        """One round; False when nothing was due."""
        by_account: dict[tuple[str, Channel], list[Case]] = defaultdict(list)
        cases, clock = self._take()
        for case in cases:
            by_account[case.row.provider or "", case.row.channel].append(case)
        if by_account:
            with self._runtime.ledger.autocommit() as connection:
                held = {(hold.provider, hold.credential) for hold in providers.holds(connection)}
        for (name, channel), cases in by_account.items():
            sender = self._senders.named(name, channel)
            if (name, sender.provider.credential) in held:
                self._settle(sender, [(case, Pending("waits: hold", _SETTINGS_S)) for case in cases], clock)
            else:
                self._ask(sender, cases, clock)
        return bool(by_account)

    def _take(self) -> tuple[list[Case], LedgerClock]:
        """What is due, and the clock that its times are compared with: this machine's own may be wrong."""
        left, taken = _ROWS, list[Case]()
        with self._runtime.ledger.autocommit() as connection:
            clock = LedgerClock(ledger_now(connection))
            sends: dict[UUID, SendContent | None] = {}
            for batch in proofs.find_due(connection, limit=_BATCHES):
                if left <= 0:
                    break
                rows = proofs.take(connection, batch, hold_s=_HOLD_S, limit=left)
                if rows and batch.send_id not in sends:
                    sends[batch.send_id] = chains.load_send(connection, batch.send_id)
                send = sends.get(batch.send_id)
                if send is not None:
                    left -= len(rows)
                    taken += [Case(batch, send, row) for row in rows]
        return taken, clock

    def _ask(self, sender: Sender, cases: Sequence[Case], clock: LedgerClock) -> None:
        """Look at rows of one provider, as many at a time as there are slots."""
        ready: list[tuple[Case, Message]] = []
        found: list[tuple[Case, Proof]] = []
        for case in cases:
            if case.row.credential != sender.provider.credential:
                found.append((case, self._other_account(case, clock)))
                continue
            try:
                ready.append((case, self._render(case, clock)))
            except RenderError as error:
                found.append((case, Unprovable(f"it cannot be rendered any more: {error}")))
        self._settle(sender, found, clock)
        if not ready:
            return
        entered = sender.guards.enter(Lane.SINGLE, len(ready))
        if not isinstance(entered, Entered):
            waits = Pending(f"waits: {entered.reason}", entered.retry_in_s + _SOON_S)
            self._settle(sender, [(case, waits) for case, _ in ready], clock)
            return
        try:
            answered = self._call(sender, entered, ready[: entered.slots])
        finally:
            sender.guards.leave(entered)
        later = [(case, Pending("waits for a slot", 1.0)) for case, _ in ready[entered.slots :]]
        self._settle(sender, [*answered, *later], clock)

    def _call(
        self, sender: Sender, entered: Entered, asked: Sequence[tuple[Case, Message]]
    ) -> list[tuple[Case, Proof]]:
        """Ask the provider; what was not answered is looked at once its hold is over."""
        found: list[tuple[Case, Proof]] = []
        failed = told = False
        try:
            with closing(self._answers(sender, [message for _, message in asked])) as answers:
                for answer in answers:
                    if answer is not None:
                        found.append((asked[answer[0]][0], answer[1]))
                        failed = failed or (isinstance(answer[1], Pending) and answer[1].failed)
                        told = told or was_asked(answer[1])
                    if self._runtime.must_cut:
                        break
        except Exception:  # noqa: BLE001
            # A bug in an adapter's look must not stop the looks at every other provider.
            _log.exception("look_failed", extra={"provider": sender.provider.name})
        if isinstance(entered.permit, Probe) and told:
            # The look was the circuit's probe, there being no call to make: it tells whether the provider answers. One
            # that asked nobody hands the probe on.
            sender.guards.report(entered, ended=len(asked), successes=int(not failed), failures=int(failed))
        return found

    def _answers(self, sender: Sender, messages: Sequence[Message]) -> Generator[tuple[int, Proof] | None, None, None]:
        yield from sender.provider.prove(messages)

    def _render(self, case: Case, clock: LedgerClock) -> Message:
        render = renderer(case.send, case.row.channel, default_sender=self._runtime.settings.email_from)
        return replace(render(case.row), age_s=(clock.now() - case.row.attempt_at).total_seconds())

    @staticmethod
    def _other_account(case: Case, clock: LedgerClock) -> Proof:
        """Only the account that was called can tell; the one set up now would know of nothing."""
        if (clock.now() - case.row.attempt_at).total_seconds() < ACCOUNT_PATIENCE_S:
            return Pending("the provider's account is not set up here now", _SETTINGS_S)
        return Unprovable("it was sent through another account than the one set up now: look there")

    def _settle(self, sender: Sender, found: Iterable[tuple[Case, Proof]], clock: LedgerClock) -> None:
        now = clock.now()
        by_batch: dict[ProvedBatch, list[tuple[Case, Verdict]]] = defaultdict(list)
        for case, proof in found:
            row = case.row
            resolution = resolution_of(self._runtime.settings, row.provider or "")
            lost_since = None if row.lost_since is None else max(case.send.owed_since, row.lost_since)
            asked = Asked(row.attempt_count, row.attempt_at, row.absences, lost_since)
            jitter = random.random()  # noqa: S311
            verdict = judge(proof, resolution, asked, sender.policy, now=now, jitter=jitter)
            by_batch[case.batch].append((case, verdict))
        for batch, judged in by_batch.items():
            try:
                record_verdicts(self._runtime.ledger, batch, judged, provider=sender.provider.name)
            except ROW_BROKEN:
                _log.exception("proof_not_recorded", extra={"send_id": str(batch.send_id), "batch_no": batch.batch_no})


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    prover = Prover(runtime, senders_of(runtime))

    @dramatiq.actor(broker=broker, actor_name=JobName.PROVE.value, queue_name=QueueName.OPS.value)
    def prove(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v != MESSAGE_VERSION:
            return
        try:
            prover.run()
        except POSTGRES_AWAY as error:
            _log.warning("proving_stopped_without_postgres", extra={"error": type(error).__name__})
