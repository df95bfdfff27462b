"""What becomes of a delivery after an attempt: the one place where retry policy lives."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

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
    Transient,
)
from shared.domain.states import DeliveryStatus


class CircuitMark(StrEnum):
    """What an outcome tells the provider's circuit."""

    SUCCESS = "success"
    FAILURE = "failure"
    NONE = "none"
    ISOLATE = "isolate"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """One channel's policy. Delays are seconds; `jitter_share` of a backoff may come on top of it."""

    base_delay_s: float = 300.0
    max_attempts: int = 5
    jitter_share: float = 0.1
    max_outage_wait_s: float = 72 * 3600.0
    retry_after_min_s: float = 1.0
    retry_after_max_s: float = 3600.0
    retry_after_default_s: float = 30.0
    recheck_s: float = 300.0

    def backoff_s(self, failures: int) -> float:
        """Seconds after the n-th failure: base × 2^(n−1)."""
        return self.base_delay_s * 2.0 ** (max(failures, 1) - 1)

    @property
    def unbroken_s(self) -> float:
        """
        Seconds that may lie between two refusals of one outage.

        Twice the longest time for which nothing need be tried in it: a backoff, a Retry-After, the wait of an account
        that was refused. At most half of the longest outage, so that two refusals alone never make one; but always
        a quarter more than that time, or an outage whose refusals lie so far apart would never grow old.
        """
        backoff_s = self.backoff_s(self.max_attempts - 1) * (1.0 + self.jitter_share)
        untried_s = max(backoff_s, self.retry_after_max_s, self.recheck_s)
        return min(2.0 * untried_s, max(self.max_outage_wait_s / 2.0, 1.25 * untried_s))

    def clamp_retry_after_s(self, wish: float | None) -> float:
        """The provider's Retry-After inside what is believed; the default where it gave none."""
        if wish is None:
            return self.retry_after_default_s
        return min(max(wish, self.retry_after_min_s), self.retry_after_max_s)


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    The try that ended.

    `count`: attempts used before it. `waiting_since`: when it became owed or the provider's outage began, whichever is
    later; the moment of the try where no outage was seen before it. `provider_took_since`: the provider has accepted
    anything since this delivery's last try (true for a first try's outcome only if it was taking messages then).
    `is_probe`: the circuit's probe.
    """

    count: int
    waiting_since: datetime
    provider_took_since: bool
    is_probe: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """
    What the row becomes. `next_attempt_at` is set for `owed` and `retrying` only, None meaning at once.

    `gate_s`: seconds for which everything for this provider waits; `gate_grows_to_s`: that time doubles, up to so many
    seconds, where the provider refuses again soon after it.
    """

    status: DeliveryStatus
    uses_attempt: bool
    circuit: CircuitMark
    next_attempt_at: datetime | None = None
    gate_s: float | None = None
    gate_grows_to_s: float | None = None
    pauses_send: bool = False
    reason: str = ""


def decide(outcome: Outcome, attempt: Attempt, policy: RetryPolicy, *, now: datetime, jitter: float) -> Decision:
    """
    Decide what happens to a delivery after an attempt.

    Pure. `now` is aware; `jitter` is in [0, 1).

    Source: seed 000 §1–2 (base × 2^(n−1), five attempts); ADR-0004; RFC 9110 §10.2.3 (Retry-After).
    """
    status, circuit = DeliveryStatus, CircuitMark
    match outcome:
        case Accepted():
            return Decision(status.SENT, uses_attempt=True, circuit=circuit.SUCCESS)
        case Transient(scope=Scope.PROVIDER):
            burns = attempt.provider_took_since and not attempt.is_probe
            return _backoff(outcome, attempt, policy, burns=burns, now=now, jitter=jitter)
        case Transient():
            return _backoff(outcome, attempt, policy, burns=True, now=now, jitter=jitter)
        case Throttled():
            if _waited_out(attempt, policy, now):
                return _given_up(circuit.NONE, policy)
            wait = policy.clamp_retry_after_s(outcome.retry_after_s)
            # A sender's queue takes hours to work off: asking every half a minute would refuse each row many times.
            grows = outcome.scope is Scope.SENDER and outcome.retry_after_s is None
            return Decision(
                status.OWED,
                uses_attempt=False,
                circuit=circuit.NONE,
                next_attempt_at=now + timedelta(seconds=wait),
                gate_s=None if outcome.scope is Scope.RECIPIENT else wait,
                gate_grows_to_s=policy.retry_after_max_s if grows else None,
            )
        case Permanent():
            return Decision(status.FAILED, uses_attempt=True, circuit=circuit.SUCCESS)
        case Suppressed():
            return Decision(status.SUPPRESSED, uses_attempt=True, circuit=circuit.SUCCESS)
        case Configuration(scope=Scope.SENDER):
            return Decision(status.OWED, uses_attempt=False, circuit=circuit.SUCCESS, pauses_send=True)
        case Configuration():
            if _waited_out(attempt, policy, now):
                return _given_up(circuit.ISOLATE, policy)
            # Due at once: the isolation alone holds it, so that it goes as soon as the isolation is lifted.
            return Decision(status.OWED, uses_attempt=False, circuit=circuit.ISOLATE)
        case Ambiguous():
            mark = circuit.FAILURE if outcome.timed_out or outcome.provider_failed else circuit.NONE
            return Decision(status.UNSURE, uses_attempt=True, circuit=mark)
        case NotAttempted():
            return Decision(status.OWED, uses_attempt=False, circuit=circuit.NONE)
        case _:
            assert_never(outcome)


def _backoff(
    outcome: Transient, attempt: Attempt, policy: RetryPolicy, *, burns: bool, now: datetime, jitter: float
) -> Decision:
    circuit = CircuitMark.FAILURE if outcome.scope is Scope.PROVIDER else CircuitMark.NONE
    used = attempt.count + 1 if burns else attempt.count
    if used >= policy.max_attempts:
        return Decision(DeliveryStatus.DEAD_LETTERED, uses_attempt=burns, circuit=circuit)
    if not burns and _waited_out(attempt, policy, now):
        return _given_up(circuit, policy)
    delay = policy.backoff_s(max(used, 1))
    if outcome.retry_after_s is not None:
        delay = max(delay, policy.clamp_retry_after_s(outcome.retry_after_s))
    delay *= 1.0 + policy.jitter_share * jitter
    return Decision(
        DeliveryStatus.RETRYING,
        uses_attempt=burns,
        circuit=circuit,
        next_attempt_at=now + timedelta(seconds=delay),
    )


def _waited_out(attempt: Attempt, policy: RetryPolicy, now: datetime) -> bool:
    return (now - attempt.waiting_since).total_seconds() >= policy.max_outage_wait_s


def _given_up(circuit: CircuitMark, policy: RetryPolicy) -> Decision:
    hours = policy.max_outage_wait_s / 3600
    return Decision(
        DeliveryStatus.DEAD_LETTERED,
        uses_attempt=False,
        circuit=circuit,
        reason=f"the provider took nothing for {hours:g} h (MAX_OUTAGE_WAIT_HOURS)",
    )
