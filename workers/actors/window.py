"""One window: claimed rows become messages, calls, outcomes, and rows again, recorded in small groups."""

import logging
import math
import random
import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from shared.coordination.circuit import Probe
from shared.coordination.guard import Entered
from shared.domain.masking import mask_text
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    name_of,
)
from shared.domain.proof import first_look_s
from shared.domain.retry import Attempt, CircuitMark, Decision, decide
from shared.domain.signature import FailureSignature, failure_signature
from shared.domain.states import DeliveryStatus
from shared.ledger import batches, chains, deliveries, providers
from shared.ledger.chains import SendContent
from shared.ledger.clock import LedgerClock
from shared.ledger.db import POSTGRES_AWAY, ROW_BROKEN, Connection, together
from shared.ledger.deliveries import Claim, ClaimedDelivery, Result
from shared.ledger.providers import Standing
from workers.actors.render import Render, RenderError
from workers.actors.senders import Sender
from workers.middleware.runtime import Runtime
from workers.providers.protocol import Message

_log = logging.getLogger(__name__)

#: Outcomes recorded together at most, and seconds one waits for company. What a crash can leave unknown is a window in
#: any case; groups of 100 cost a worker a fifth less CPU than groups of 25 and Postgres a third (tests/benchmarks).
GROUP_MAX = 100
GROUP_WAIT_S = 0.05
#: Seconds between two tries to record while Postgres is away.
_RECORD_AGAIN_S = 0.5
#: Seconds an adapter has to answer once it was told to cut its calls.
_CUT_PATIENCE_S = 0.3
#: Seconds between two notes that the provider takes messages, or takes none, per process and provider.
_NOTE_S = 1.0

#: characters kept of a provider's id; those known are below 100.
_REF_MAX = 255

_noted: dict[tuple[str, str, str], float] = {}


@dataclass(slots=True)
class Window:
    """
    The rows of one claim, on their way.

    `run` answers every row: a call that was cut, or an adapter that failed, leaves no row unanswered.
    """

    runtime: Runtime
    worker: UUID
    sender: Sender
    entered: Entered
    send: SendContent
    claim: Claim
    render: Render
    standing: Standing
    _results: list[Result] = field(default_factory=list)
    _successes: int = 0
    _failures: int = 0
    _calls: int = 0
    _calling: bool = False
    _told: dict[int, Outcome] = field(default_factory=dict)
    _group_since: float = 0.0
    _record_at: float = 0.0
    _signatures: dict[str, FailureSignature] = field(default_factory=dict)
    _suppressed: list[str] = field(default_factory=list)
    _poison: set[str] = field(default_factory=set)
    _pause_reason: str | None = None
    _misconfigured: str | None = None
    _took: bool = False
    _refused: bool = False
    _news: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _rows: Sequence[ClaimedDelivery] = ()
    _clock: LedgerClock = field(init=False)

    def __post_init__(self) -> None:
        self._clock = LedgerClock(self.claim.started_at)

    def run(self, rows: Sequence[ClaimedDelivery]) -> None:
        """Make the calls and record what they came to; the guards are left by the caller."""
        self._rows = rows
        calls: list[ClaimedDelivery] = []
        messages: list[Message] = []
        for row in rows:
            if row.suppressed:
                self._settle_suppressed(row)
                continue
            try:
                messages.append(self.render(row))
                calls.append(row)
            except (RenderError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                # One row that cannot be rendered, by whatever mistake of ours, must not keep the others.
                detail = str(error) if isinstance(error, RenderError) else type(error).__name__
                self._settle(row, Permanent(Scope.MESSAGE, "render_failed", detail), called=False)
        self._give_back_spare_slots(len(calls))
        if not self.runtime.lease.holds(self.worker):
            # Somebody else may hold these rows by now: the last look before the first byte.
            for row in calls:
                self._settle(row, NotAttempted("the lease ran out before the call"), called=False)
        else:
            self._call(calls, messages)
        self._record_all()

    def _give_back_spare_slots(self, calls: int) -> None:
        """Fewer rows were due than calls allowed: a send to one must not keep the whole cap for as long as it takes."""
        spare = self.entered.slots - calls
        if spare > 0:
            self.sender.guards.report(self.entered, ended=spare)

    def _call(self, rows: Sequence[ClaimedDelivery], messages: Sequence[Message]) -> None:
        self._calling = True
        waiting = dict(enumerate(rows))
        cut, cut_at = "the adapter failed; see the log", math.inf
        try:
            with closing(self._answers(messages)) as answers:
                for answer in answers:
                    if answer is not None:
                        self._settle(waiting.pop(answer[0]), answer[1], called=True)
                    self._record_if_due()
                    if self.runtime.must_cut:
                        cut = "the process had to stop before the answer came"
                        self.sender.provider.cut()
                        cut_at = min(cut_at, time.monotonic())
                        if time.monotonic() - cut_at > _CUT_PATIENCE_S:
                            break
        except Exception:  # noqa: BLE001
            # A bug in an adapter must not leave rows without an answer: each call may have been made.
            _log.exception("adapter_failed", extra={"provider": self.claim.provider, "send_id": str(self.send.id)})
        for row in waiting.values():
            self._settle(row, Ambiguous("call_cut", cut), called=True)

    def _answers(self, messages: Sequence[Message]) -> Generator[tuple[int, Outcome] | None, None, None]:
        yield from self.sender.provider.send(messages)

    def _settle(self, row: ClaimedDelivery, outcome: Outcome, *, called: bool) -> None:
        now = self._clock.now()
        previous = row.previous_attempt_at or self.send.owed_since
        took_at, outage_since = self.standing.took_at, self.standing.outage_since
        took = took_at is not None and took_at > previous
        waiting_since = now if outage_since is None else max(self.send.owed_since, outage_since)
        attempt = Attempt(row.attempt_count, waiting_since, took, isinstance(self.entered.permit, Probe))
        decision = decide(outcome, attempt, self.sender.policy, now=now, jitter=random.random())  # noqa: S311
        if called:
            self._calls += 1
            self._tell_guards(outcome, decision, now)
        self._note(row, outcome, decision)
        code, detail, evidence = _described(outcome, decision)
        failure = None
        if not isinstance(outcome, Accepted | NotAttempted):
            failure = self._sign(name_of(outcome), outcome.code, outcome.detail)
        if failure is not None and isinstance(outcome, Permanent) and outcome.scope is Scope.MESSAGE:
            self._poison.add(failure.id)
        self._results.append(
            Result(
                row_no=row.row_no,
                batch_no=row.batch_no,
                became=decision.status,
                uses_attempt=decision.uses_attempt,
                next_attempt_at=decision.next_attempt_at,
                ref=_storable(outcome.ref) if isinstance(outcome, Accepted) else None,
                outcome=name_of(outcome),
                code=code,
                detail=detail,
                signature=None if failure is None else failure.id,
                ended_at=now,
                evidence=evidence,
                prove_at=self._first_look(now, evidence) if decision.status is DeliveryStatus.UNSURE else None,
            )
        )
        if len(self._results) == 1:
            self._group_since = time.monotonic()

    def _first_look(self, now: datetime, evidence: dict[str, str] | None) -> datetime | None:
        """When a look at what the provider knows is worth it; None where it will never tell, and has said all."""
        look_s = first_look_s(self.sender.provider.resolution)
        if look_s is None:
            return None if evidence else now
        return now + timedelta(seconds=look_s)

    def _settle_suppressed(self, row: ClaimedDelivery) -> None:
        detail = "the address is on the suppression list"
        self._results.append(
            Result(
                row_no=row.row_no,
                batch_no=row.batch_no,
                became=DeliveryStatus.SUPPRESSED,
                uses_attempt=False,
                next_attempt_at=None,
                ref=None,
                outcome="suppression_list",
                code="suppression_list",
                detail=detail,
                signature=None,
                ended_at=self._clock.now(),
                evidence=None,
            )
        )

    def _tell_guards(self, outcome: Outcome, decision: Decision, now: datetime) -> None:
        # One failed request may speak for many recipients: they share one outcome, and it counts once.
        first = id(outcome) not in self._told
        self._told[id(outcome)] = outcome
        if decision.circuit is CircuitMark.SUCCESS:
            self._successes += first
        elif decision.circuit is CircuitMark.FAILURE:
            self._failures += first
        self._refused |= decision.circuit in (CircuitMark.FAILURE, CircuitMark.ISOLATE)
        if isinstance(outcome, Accepted):
            self.standing, self._took = replace(self.standing, took_at=now, outage_since=None), True
        elif isinstance(outcome, Throttled) and outcome.scope is not Scope.RECIPIENT:
            self._refused = True
            if decision.gate_s is None:
                return
            self.sender.guards.throttle(decision.gate_s, grows_to_s=decision.gate_grows_to_s)
            self.runtime.doorbell.ring("providers", "channels")
        elif decision.circuit is CircuitMark.ISOLATE and isinstance(outcome, Configuration):
            text = mask_text(outcome.detail)
            self.sender.guards.isolate(self.entered, reason=text, code=outcome.code)
            self._misconfigured = f"{outcome.code}: {text}"[:1024]

    def _note(self, row: ClaimedDelivery, outcome: Outcome, decision: Decision) -> None:
        if isinstance(outcome, Suppressed):
            self._suppressed.append(row.address)
        if decision.pauses_send and isinstance(outcome, Configuration):
            self._pause_reason = mask_text(f"the provider refuses this sender ({outcome.code}): {outcome.detail}")

    def _sign(self, outcome_class: str, code: str, detail: str) -> FailureSignature:
        failure = failure_signature(
            channel=self.claim.channel.value,
            provider=self.claim.provider,
            outcome_class=outcome_class,
            code=code,
            detail=mask_text(detail),
        )
        self._signatures.setdefault(failure.id, failure)
        return failure

    def _record_if_due(self) -> None:
        due = len(self._results) >= GROUP_MAX or time.monotonic() - self._group_since >= GROUP_WAIT_S
        if self._results and due and time.monotonic() >= self._record_at:
            try:
                self._record()
            except POSTGRES_AWAY as error:
                self._record_at = time.monotonic() + _RECORD_AGAIN_S
                _log.warning("outcomes_wait_for_postgres", extra={"error": type(error).__name__})

    def _record_all(self) -> None:
        """Record what is left; what is known is not given up because Postgres is away: only this process knows it."""
        while True:
            try:
                return self._record()
            except POSTGRES_AWAY:
                if self.runtime.must_cut:
                    raise
                time.sleep(_RECORD_AGAIN_S)

    def _record(self) -> None:
        """
        Write the group down, then tell the guards: a slot is free only once its outcome is known to all.

        Doing it again after a lost commit is harmless: what was recorded is no longer under the claim.
        """
        results = list(self._results)
        if not results:
            return
        # The next window's claim, or the chain's end, waits for the disk for this too: what a crash of the server
        # could undo is never more than this window, and undone rows are `sending`, which nobody sends again.
        with self.runtime.ledger.transaction_later_durable() as connection:
            if not self.runtime.lease.holds(self.worker):
                held = sorted({result.batch_no for result in results})
                batches.lock(connection, send_id=self.send.id, batches=held)
            late = deliveries.record(connection, self.claim, results)
            self._record_around(connection, results)
        _noted.update(self._news)
        # On their own: these lock the send first and then its batch, as everybody does, and here the batch is locked.
        if late or self._poison or self._pause_reason is not None:
            with self.runtime.ledger.autocommit() as connection:
                self._record_above(connection, results, late)
        self._results, self._suppressed = [], []
        self._pause_reason = self._misconfigured = None
        self._took = self._refused = False
        self._poison.clear()
        self._signatures.clear()
        self._ring(results)
        ended, self._calls = self._calls, 0
        self.sender.guards.report(self.entered, ended=ended, successes=self._successes, failures=self._failures)
        self._successes = self._failures = 0

    def _ring(self, results: Sequence[Result]) -> None:
        failing = any(result.signature for result in results)
        self.runtime.doorbell.ring("channels", "sends", "last_hour", "queues", *(("failures",) if failing else ()))

    def settle_unrecorded(self, connection: Connection) -> None:
        """
        Leave no row of a window that ended in an exception `sending`: nobody else may touch it while we live.

        What is known is recorded if it can be; for the rest a call may have been made, so it becomes unsure. Before
        the first call everything is given back as it was.
        Rows that were recorded in time are no longer under the claim, and stay as they are.
        """
        with suppress(*ROW_BROKEN):
            late = self._write(connection, self._results)
            self._record_above(connection, self._results, late)
        self._results = []
        unknown = Ambiguous("not_recorded", "the outcome could not be recorded; see the log")
        for row in self._rows:
            self._settle(row, unknown if self._calling else NotAttempted("failed before the call"), called=False)
        self._write(connection, self._results)

    def _write(self, connection: Connection, results: Sequence[Result]) -> list[Result]:
        """Record at the end of a window that failed; the results whose rows are no longer under the claim."""
        with together(connection):
            late = deliveries.record(connection, self.claim, results) if results else []
            self._record_around(connection, [result for result in results if result not in late])
        return late

    def _record_around(self, connection: Connection, results: Sequence[Result]) -> None:
        """What a group changes beside its rows: groups of failures, suppressions, the provider's state."""
        # In order: windows that meet the same faults and addresses would wait for each other crosswise.
        failed = {result.signature: result.outcome for result in results if result.signature}
        for id_, outcome in sorted(failed.items()):
            if id_ in self._signatures:
                deliveries.note_failure_group(
                    connection,
                    self._signatures[id_],
                    channel=self.claim.channel,
                    provider=self.claim.provider,
                    outcome=outcome,
                )
        if self._suppressed:
            deliveries.suppress(
                connection,
                tenant_id=self.send.tenant_id,
                channel=self.claim.channel,
                addresses=sorted(self._suppressed),
                reason=f"refused by {self.claim.provider}",
            )
        self._note_provider(connection)
        if self._misconfigured is not None:
            providers.note_misconfigured(
                connection,
                provider=self.claim.provider,
                credential=self.sender.provider.credential,
                error=self._misconfigured,
            )

    def _record_above(self, connection: Connection, results: Sequence[Result], late: Sequence[Result]) -> None:
        """What locks the send: results of rows that somebody parked meanwhile, and pauses."""
        for result in late:
            deliveries.record_late(connection, self.claim, result, late_claim=uuid4())
        most = self.runtime.settings.poison_guard_count
        for signature in self._poison if most else ():
            reason = f"{most} recipients met the same fault of the message: {self._titles(results, signature)}"
            chains.pause_poisoned(connection, self.send.id, signature=signature, most=most, reason=reason)
        if self._pause_reason is not None:
            chains.pause(connection, self.send.id, reason=self._pause_reason)

    def _note_provider(self, connection: Connection) -> None:
        account = {"provider": self.claim.provider, "credential": self.sender.provider.credential}
        self._news = {}
        if self._took and self._is_news("took"):
            providers.note_accepted(connection, **account)
        if self._refused and self._is_news("refused"):
            providers.note_refused(connection, **account, unbroken_s=self.sender.policy.unbroken_s)

    def _is_news(self, what: str) -> bool:
        # It counts as noted once it is committed: after a lost commit the same group must note it again.
        key = (self.claim.provider, self.sender.provider.credential, what)
        now = time.monotonic()
        if now - _noted.get(key, -math.inf) < _NOTE_S:
            return False
        self._news[key] = now
        return True

    @staticmethod
    def _titles(results: Sequence[Result], signature: str) -> str:
        return next((r.detail or r.code or "" for r in results if r.signature == signature), signature)


def _storable(ref: str | None) -> str | None:
    """A provider's id as Postgres can hold it: whatever it is made of, the message was accepted."""
    return None if ref is None else ref[:_REF_MAX].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _described(outcome: Outcome, decision: Decision) -> tuple[str | None, str | None, dict[str, str] | None]:
    """Code, masked text and evidence of an attempt's row."""
    match outcome:
        case Accepted():
            return None, None, None
        case NotAttempted():
            return "not_attempted", None, None
        case Ambiguous():
            evidence = {key: mask_text(value) for key, value in outcome.evidence.items()}
            return outcome.code, mask_text(f"{outcome.code}: {outcome.detail}"), evidence or None
        case _:
            text = f"{outcome.code}: {outcome.detail}" if outcome.detail else outcome.code
            return outcome.code, mask_text(f"{text} ({decision.reason})" if decision.reason else text), None
