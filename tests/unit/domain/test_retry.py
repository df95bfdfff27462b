from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from shared.domain.retry import Attempt, CircuitMark, Decision, RetryPolicy, decide
from shared.domain.states import DELIVERY_EDGES, DeliveryStatus

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POLICY = RetryPolicy()
FIRST = Attempt(count=0, waiting_since=NOW - timedelta(minutes=1), provider_took_since=True, is_probe=False)
TIRED = replace(FIRST, waiting_since=NOW - timedelta(hours=72))

DOWN = Transient(Scope.PROVIDER, "connect")
GREYLISTED = Transient(Scope.RECIPIENT, "greylisted")


def after(outcome: Outcome, attempt: Attempt = FIRST, *, policy: RetryPolicy = POLICY, jitter: float = 0.0) -> Decision:
    return decide(outcome, attempt, policy, now=NOW, jitter=jitter)


def minutes_until_next(decision: Decision) -> float:
    assert decision.next_attempt_at is not None
    return (decision.next_attempt_at - NOW).total_seconds() / 60


@pytest.mark.parametrize(
    ("outcome", "status", "uses_attempt", "circuit"),
    [
        pytest.param(Accepted("ref"), "sent", True, "success", id="accepted"),
        pytest.param(DOWN, "retrying", True, "failure", id="transient-of-the-provider"),
        pytest.param(GREYLISTED, "retrying", True, "none", id="transient-of-the-recipient"),
        pytest.param(Throttled("429"), "owed", False, "none", id="throttled"),
        pytest.param(Permanent(Scope.RECIPIENT, "550"), "failed", True, "success", id="permanent-for-the-recipient"),
        pytest.param(Permanent(Scope.MESSAGE, "422"), "failed", True, "success", id="permanent-for-the-message"),
        pytest.param(Suppressed("21610"), "suppressed", True, "success", id="suppressed"),
        pytest.param(Configuration(Scope.PROVIDER, "401"), "owed", False, "isolate", id="our-account-is-wrong"),
        pytest.param(Configuration(Scope.SENDER, "from"), "owed", False, "success", id="our-sender-is-refused"),
        pytest.param(Ambiguous("lost"), "unsure", True, "none", id="answer-lost"),
        pytest.param(Ambiguous("timeout", timed_out=True), "unsure", True, "failure", id="answer-timed-out"),
        pytest.param(Ambiguous("dropped", provider_failed=True), "unsure", True, "failure", id="answer-dropped"),
        pytest.param(NotAttempted("draining"), "owed", False, "none", id="not-attempted"),
    ],
)
def test_each_outcome_makes_of_the_row_the_attempt_and_the_circuit_what_the_table_says(
    outcome: Outcome, status: str, uses_attempt: bool, circuit: str
) -> None:
    decision = after(outcome)
    assert (decision.status, decision.uses_attempt, decision.circuit) == (status, uses_attempt, circuit)
    assert (DeliveryStatus.SENDING, decision.status) in DELIVERY_EDGES


@pytest.mark.parametrize(("used_before", "minutes"), [(0, 5), (1, 10), (2, 20), (3, 40)])
@pytest.mark.parametrize("outcome", [DOWN, GREYLISTED])
def test_the_backoff_doubles_from_five_minutes(outcome: Outcome, used_before: int, minutes: int) -> None:
    decision = after(outcome, replace(FIRST, count=used_before))
    assert decision.status is DeliveryStatus.RETRYING
    assert minutes_until_next(decision) == minutes


@pytest.mark.parametrize("outcome", [DOWN, GREYLISTED])
def test_the_fifth_failure_dead_letters_and_leaves_no_next_time(outcome: Outcome) -> None:
    decision = after(outcome, replace(FIRST, count=4))
    assert decision.status is DeliveryStatus.DEAD_LETTERED
    assert decision.uses_attempt
    assert decision.next_attempt_at is None


def test_the_number_of_attempts_and_the_base_delay_are_the_policys() -> None:
    policy = RetryPolicy(base_delay_s=60, max_attempts=2)
    assert minutes_until_next(after(DOWN, policy=policy)) == 1
    assert after(DOWN, replace(FIRST, count=1), policy=policy).status is DeliveryStatus.DEAD_LETTERED


@given(st.integers(0, 3), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_comes_on_top_of_the_backoff_and_stays_within_its_share(used: int, jitter: float, share: float) -> None:
    policy = RetryPolicy(jitter_share=share)
    plain = 5.0 * 2**used
    waited = minutes_until_next(after(DOWN, replace(FIRST, count=used), policy=policy, jitter=jitter))
    assert plain - 1e-6 <= waited <= plain * (1 + share) + 1e-6


def test_a_provider_that_took_nothing_since_the_last_try_burns_no_attempt() -> None:
    outage = replace(FIRST, count=4, provider_took_since=False)
    decision = after(DOWN, outage)
    assert decision.status is DeliveryStatus.RETRYING
    assert not decision.uses_attempt
    assert minutes_until_next(decision) == 40


def test_a_first_try_during_an_outage_waits_the_first_backoff() -> None:
    assert minutes_until_next(after(DOWN, replace(FIRST, provider_took_since=False))) == 5


def test_a_probe_never_burns_an_attempt() -> None:
    decision = after(DOWN, replace(FIRST, count=4, is_probe=True))
    assert (decision.status, decision.uses_attempt) == (DeliveryStatus.RETRYING, False)


def test_a_recipients_own_refusal_burns_an_attempt_whoever_else_was_taken() -> None:
    outage = replace(FIRST, count=4, provider_took_since=False, is_probe=True)
    assert after(GREYLISTED, outage).status is DeliveryStatus.DEAD_LETTERED


@given(st.integers(1, 200))
def test_an_outage_of_any_number_of_tries_within_the_wait_fails_nobody(tries: int) -> None:
    count = 0
    for _ in range(tries):
        decision = after(DOWN, replace(FIRST, count=count, provider_took_since=False))
        assert decision.status is DeliveryStatus.RETRYING
        count += decision.uses_attempt
    assert count == 0


@pytest.mark.parametrize(
    "outcome", [DOWN, Throttled("429"), Configuration(Scope.PROVIDER, "401")], ids=["down", "throttled", "our-account"]
)
def test_waiting_ends_after_the_longest_outage_and_says_so(outcome: Outcome) -> None:
    waited = replace(TIRED, provider_took_since=False)
    decision = after(outcome, waited)
    assert decision.status is DeliveryStatus.DEAD_LETTERED
    assert not decision.uses_attempt
    assert decision.next_attempt_at is None
    assert "72 h" in decision.reason
    assert "MAX_OUTAGE_WAIT_HOURS" in decision.reason
    almost = replace(waited, waiting_since=waited.waiting_since + timedelta(seconds=1))
    assert after(outcome, almost).status in (DeliveryStatus.RETRYING, DeliveryStatus.OWED)


def test_refusals_of_one_outage_lie_no_further_apart_than_anything_that_waits_may_go_untried() -> None:
    assert POLICY.unbroken_s == 2 * 3600  # the longest Retry-After, twice
    assert RetryPolicy(max_attempts=6).unbroken_s == pytest.approx(2 * 80 * 60 * 1.1)
    assert RetryPolicy(recheck_s=7_000).unbroken_s == 14_000
    assert RetryPolicy(recheck_s=86_400, max_outage_wait_s=72 * 3600).unbroken_s == 36 * 3600  # half an outage


@pytest.mark.parametrize(("recheck_s", "hours"), [(300, 1), (300, 2), (86_400, 1), (86_400, 48)])
def test_an_outage_whose_refusals_lie_far_apart_grows_old_however_short_the_longest_one_is(
    recheck_s: float, hours: float
) -> None:
    policy = RetryPolicy(recheck_s=recheck_s, max_outage_wait_s=hours * 3600)
    assert policy.unbroken_s == pytest.approx(1.25 * max(recheck_s, policy.retry_after_max_s))


@pytest.mark.parametrize("outcome", [Configuration(Scope.SENDER, "from"), NotAttempted("draining")])
def test_a_paused_send_and_a_call_not_made_are_not_given_up_for_their_age(outcome: Outcome) -> None:
    assert after(outcome, TIRED).status is DeliveryStatus.OWED


@pytest.mark.parametrize(
    ("wish", "waits"),
    [(None, 30.0), (0.0, 1.0), (-5.0, 1.0), (12.5, 12.5), (3600.0, 3600.0), (86_400.0, 3600.0), (float("inf"), 3600.0)],
)
def test_retry_after_is_honoured_within_bounds(wish: float | None, waits: float) -> None:
    decision = after(Throttled("429", retry_after_s=wish))
    assert decision.gate_s == waits
    assert decision.gate_grows_to_s is None
    assert decision.next_attempt_at == NOW + timedelta(seconds=waits)


def test_a_full_queue_of_the_sender_holds_everything_back_for_longer_and_longer() -> None:
    full = Throttled("21611", scope=Scope.SENDER)
    decision = after(full)
    assert (decision.gate_s, decision.gate_grows_to_s) == (30.0, 3600.0)
    decision = after(replace(full, retry_after_s=60.0))
    assert (decision.gate_s, decision.gate_grows_to_s) == (60.0, None)


def test_a_wait_for_one_recipient_holds_back_nobody_else() -> None:
    decision = after(Throttled("409", retry_after_s=10.0, scope=Scope.RECIPIENT))
    assert (decision.gate_s, decision.next_attempt_at) == (None, NOW + timedelta(seconds=10))


@pytest.mark.parametrize(("wish", "waits"), [(None, 300.0), (60.0, 300.0), (1800.0, 1800.0), (86_400.0, 3600.0)])
def test_a_failing_provider_that_says_when_to_come_back_is_not_asked_before(wish: float | None, waits: float) -> None:
    decision = after(Transient(Scope.PROVIDER, "503", retry_after_s=wish))
    assert decision.next_attempt_at == NOW + timedelta(seconds=waits)


def test_only_a_refused_sender_pauses_the_send() -> None:
    assert after(Configuration(Scope.SENDER, "from")).pauses_send
    for outcome in (Configuration(Scope.PROVIDER, "401"), Permanent(Scope.MESSAGE, "422"), DOWN, Accepted(None)):
        assert not after(outcome).pauses_send


def test_what_was_never_called_or_waits_for_our_settings_is_due_at_once_and_held_by_nothing_of_its_own() -> None:
    for outcome in (
        NotAttempted("draining"),
        Configuration(Scope.SENDER, "from"),
        Configuration(Scope.PROVIDER, "401"),
    ):
        assert after(outcome).next_attempt_at is None


_SCOPES = st.sampled_from(Scope)
_OUTCOMES = st.one_of(
    st.builds(Accepted, st.none() | st.text(max_size=5)),
    st.builds(Transient, _SCOPES, st.just("c")),
    st.builds(Throttled, st.just("c"), retry_after_s=st.none() | st.floats(allow_nan=False)),
    st.builds(Permanent, _SCOPES, st.just("c")),
    st.builds(Suppressed, st.just("c")),
    st.builds(Configuration, _SCOPES, st.just("c")),
    st.builds(Ambiguous, st.just("c"), timed_out=st.booleans()),
    st.builds(NotAttempted, st.just("r")),
)
_ATTEMPTS = st.builds(
    Attempt,
    count=st.integers(0, 30),
    waiting_since=st.datetimes(NOW.replace(tzinfo=None) - timedelta(days=9), NOW.replace(tzinfo=None)).map(
        lambda moment: moment.replace(tzinfo=UTC)
    ),
    provider_took_since=st.booleans(),
    is_probe=st.booleans(),
)


@given(_OUTCOMES, _ATTEMPTS, st.floats(0, 1, exclude_max=True))
def test_every_decision_fits_the_ledgers_checks(outcome: Outcome, attempt: Attempt, jitter: float) -> None:
    decision = after(outcome, attempt, jitter=jitter)
    assert (DeliveryStatus.SENDING, decision.status) in DELIVERY_EDGES
    if decision.status is DeliveryStatus.RETRYING:
        assert decision.next_attempt_at is not None
    if decision.status not in (DeliveryStatus.RETRYING, DeliveryStatus.OWED):
        assert decision.next_attempt_at is None
    if decision.next_attempt_at is not None:
        assert decision.next_attempt_at > NOW
    if decision.gate_s is not None:
        assert decision.next_attempt_at is not None
    waits = isinstance(outcome, Throttled | NotAttempted | Configuration)
    assert not (waits and decision.uses_attempt)
    assert (decision.circuit is CircuitMark.ISOLATE) == (
        isinstance(outcome, Configuration) and outcome.scope is not Scope.SENDER
    )
