from collections.abc import Callable

import pybreaker
import pytest
import redis

from shared.coordination.circuit import Admitted, Circuit, CircuitDeniedError, Denied, Permit, Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.redis import RedisLink
from tests.support.waiting import wait_until

FAST = CircuitPolicy(open_s=0.1, probe_lease_s=30)
SLOW = CircuitPolicy()

MakeCircuit = Callable[..., Circuit]


@pytest.fixture
def circuit_of(link: RedisLink, namespace: str) -> MakeCircuit:
    """A circuit as another process would make it: the same keys, nothing shared in memory."""

    def make(
        policy: CircuitPolicy = SLOW, *, provider: str = "ches", credential: str = "a1", **more: object
    ) -> Circuit:
        return Circuit(link, provider=provider, credential=credential, policy=policy, namespace=namespace, **more)

    return make


def admitted(circuit: Circuit) -> Admitted:
    permit = circuit.admit()
    assert isinstance(permit, Admitted)
    return permit


def probe(circuit: Circuit) -> Probe:
    """The probe of an open circuit, once its time has come."""

    def ask() -> Probe | None:
        permit = circuit.admit()
        return permit if isinstance(permit, Probe) else None

    return wait_until(ask)


def trip(circuit: Circuit) -> None:
    circuit.report(admitted(circuit), failures=circuit.policy.failures)
    assert circuit.snapshot().state == "open"


def is_denied(permit: Permit, reason: str) -> bool:
    return isinstance(permit, Denied) and permit.reason == reason


def test_the_fifth_failure_in_the_window_opens_it(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    for _ in range(4):
        circuit.report(admitted(circuit), failures=1)
    assert circuit.snapshot().state == "closed"
    circuit.report(admitted(circuit), failures=1)
    assert circuit.snapshot().state == "open"
    denied = circuit.admit()
    assert isinstance(denied, Denied)
    assert denied.reason == "circuit"
    assert 29 < denied.retry_in_s <= 30


def test_one_window_with_many_failures_opens_it(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    circuit.report(admitted(circuit), successes=92, failures=8)
    assert circuit.snapshot().state == "open"


def test_successes_between_failures_do_not_reset_the_count(circuit_of: MakeCircuit) -> None:
    """pybreaker counts consecutive failures: 80 % failing would never open it."""
    circuit = circuit_of()
    circuit.report(admitted(circuit), failures=4)
    circuit.report(admitted(circuit), successes=1)
    assert circuit.snapshot().state == "closed"
    circuit.report(admitted(circuit), failures=1)
    assert circuit.snapshot().state == "open"


def test_failures_older_than_the_window_do_not_count(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(window_s=0.2))
    circuit.report(admitted(circuit), failures=4)
    wait_until(lambda: circuit.snapshot().failures_in_window == 0)
    circuit.report(admitted(circuit), failures=4)
    assert circuit.snapshot().state == "closed"


def test_failures_that_trickle_in_slower_than_the_window_never_open_it(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(window_s=0.5))
    for _ in range(12):
        circuit.report(admitted(circuit), failures=1)
        wait_until(lambda: circuit.snapshot().failures_in_window < 4)
    assert circuit.snapshot().state == "closed"


def test_failures_are_counted_over_processes(circuit_of: MakeCircuit) -> None:
    for _ in range(5):
        circuit = circuit_of()
        circuit.report(admitted(circuit), failures=1)
    assert circuit_of().snapshot().state == "open"


def test_a_circuit_belongs_to_one_provider_and_credential(circuit_of: MakeCircuit) -> None:
    trip(circuit_of(provider="twilio", credential="a1"))
    assert isinstance(circuit_of(provider="twilio", credential="b2").admit(), Admitted)
    assert isinstance(circuit_of(provider="ches", credential="a1").admit(), Admitted)


def test_an_open_circuit_hands_out_one_probe(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(FAST)
    trip(circuit)
    probe(circuit)
    assert circuit.snapshot().state == "half-open"
    assert is_denied(circuit_of(FAST).admit(), "circuit")


def test_a_successful_probe_closes_it(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(FAST)
    trip(circuit)
    circuit.report(probe(circuit), successes=1)
    assert circuit.snapshot().state == "closed"
    assert isinstance(circuit.admit(), Admitted)
    assert circuit.snapshot().failures_in_window == 0


def test_a_failed_probe_opens_it_for_another_period(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(open_s=1.0))
    trip(circuit)
    opened_at = circuit.snapshot().opened_at
    circuit.report(probe(circuit), failures=1)
    snapshot = circuit.snapshot()
    assert (snapshot.state, snapshot.reopened) == ("open", 1)
    assert snapshot.opened_at == opened_at, "the same outage"
    assert is_denied(circuit.admit(), "circuit")
    circuit.report(probe(circuit), successes=1)
    assert circuit.snapshot().reopened == 0
    trip(circuit)
    assert circuit.snapshot().opened_at != opened_at, "another outage"


def test_an_inconclusive_probe_is_handed_to_the_next_caller(circuit_of: MakeCircuit) -> None:
    """Throttled, interrupted, or a fault of ours before the call: it proves nothing either way."""
    circuit = circuit_of(FAST)
    trip(circuit)
    circuit.report(probe(circuit), successes=1, inconclusive=True)
    assert circuit.snapshot().state == "open"
    assert isinstance(circuit_of(FAST).admit(), Probe)


def test_a_probe_without_any_result_is_handed_on_too(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(FAST)
    trip(circuit)
    circuit.report(probe(circuit))
    assert isinstance(circuit.admit(), Probe)


def test_a_prober_that_died_frees_itself(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(open_s=0.05, probe_lease_s=1.0))
    trip(circuit)
    dead = probe(circuit)
    assert is_denied(circuit.admit(), "circuit")
    assert probe(circuit).token != dead.token


def test_the_result_of_a_probe_that_was_taken_over_is_ignored(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(open_s=0.05, probe_lease_s=0.1))
    trip(circuit)
    slow = probe(circuit)
    current = probe(circuit)
    circuit.report(slow, successes=1)
    assert circuit.snapshot().state != "closed"
    circuit.report(current, successes=1)
    assert circuit.snapshot().state == "closed"


def test_results_of_calls_admitted_before_the_trip_are_ignored(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(FAST)
    early = admitted(circuit)
    trip(circuit)
    opened_at = circuit.snapshot().opened_at
    circuit.report(early, failures=100)
    assert circuit.snapshot().opened_at == opened_at
    circuit.report(probe(circuit), successes=1)
    circuit.report(early, failures=100)
    assert circuit.snapshot().state == "closed"


def test_a_configuration_error_isolates_it(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    circuit.isolate(reason="password refused", code="auth", permit=admitted(circuit))
    denied = circuit.admit()
    assert isinstance(denied, Denied)
    assert denied.reason == "isolated"
    assert 299 < denied.retry_in_s <= 300
    isolation = circuit.snapshot().isolation
    assert isolation is not None
    assert (isolation.reason, isolation.code) == ("password refused", "auth")


def test_an_isolation_is_looked_at_again_by_one_call(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(recheck_s=0.5))
    circuit.isolate(reason="password refused", code="auth")
    looking = probe(circuit)
    assert is_denied(circuit.admit(), "isolated")
    circuit.isolate(reason="password refused", code="auth", permit=looking)
    assert is_denied(circuit.admit(), "isolated")
    circuit.report(probe(circuit), successes=1)
    assert circuit.snapshot().isolation is None
    assert isinstance(circuit.admit(), Admitted)


def test_changed_settings_have_an_isolation_looked_at_at_once(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    assert not circuit.look_again()
    circuit.isolate(reason="password refused", code="auth")
    assert circuit.look_again()
    assert isinstance(circuit.admit(), Probe)


def test_a_configuration_error_of_an_earlier_epoch_does_not_isolate(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(FAST)
    early = admitted(circuit)
    trip(circuit)
    circuit.report(probe(circuit), successes=1)
    circuit.isolate(reason="password refused", code="auth", permit=early)
    assert isinstance(circuit.admit(), Admitted)


def test_a_configuration_error_of_a_call_admitted_before_the_trip_is_left_to_the_probe(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    early = admitted(circuit)
    trip(circuit)
    circuit.isolate(reason="password refused", code="auth", permit=early)
    assert circuit.snapshot().isolation is None


def test_nothing_but_a_release_ends_an_operators_hold(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of(CircuitPolicy(recheck_s=0.05, open_s=0.05))
    circuit.isolate(reason="password refused", code="auth")
    looking = probe(circuit)
    assert circuit.hold(by="kim", reason="provider asked us to stop")
    assert not circuit.hold(by="lee", reason="the same")
    circuit.report(looking, successes=1)
    circuit.look_again()
    assert is_denied(circuit.admit(), "hold")
    snapshot = circuit.snapshot()
    assert snapshot.hold is not None
    assert (snapshot.hold.by, snapshot.hold.reason, snapshot.isolation) == ("lee", "the same", None)

    assert circuit.release()
    assert not circuit.release()
    assert isinstance(circuit.admit(), Admitted)


def test_releasing_a_hold_leaves_an_isolation(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    circuit.hold(by="kim", reason="maintenance")
    circuit.isolate(reason="password refused", code="auth")
    circuit.release()
    assert is_denied(circuit.admit(), "isolated")


def test_a_hold_has_no_time_to_live_and_all_else_has(circuit_of: MakeCircuit, raw: redis.Redis, namespace: str) -> None:
    circuit = circuit_of()
    key = f"{namespace}:{{ches:a1}}:circuit"
    circuit.hold(by="kim", reason="maintenance")
    assert raw.ttl(key) == -1
    circuit.isolate(reason="password refused", code="auth")
    assert raw.ttl(key) == -1
    circuit.release()
    assert raw.ttl(key) > 0


def test_success_while_closed_writes_nothing(circuit_of: MakeCircuit, raw: redis.Redis, namespace: str) -> None:
    circuit = circuit_of()
    circuit.report(admitted(circuit), successes=100)
    assert not raw.exists(f"{namespace}:{{ches:a1}}:circuit", f"{namespace}:{{ches:a1}}:circuit:failures")


def test_an_emptied_redis_closes_it_and_old_results_stay_stale(
    circuit_of: MakeCircuit, raw: redis.Redis, namespace: str
) -> None:
    circuit = circuit_of(FAST)
    trip(circuit)
    circuit.report(probe(circuit), successes=1)
    early = admitted(circuit)
    raw.delete(*raw.keys(f"{namespace}:*"))
    circuit.report(early, failures=100)
    assert isinstance(circuit.admit(), Admitted)


class _Heard(pybreaker.CircuitBreakerListener):
    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def state_change(self, cb: object, old_state: object, new_state: object) -> None:
        self.changes.append((old_state.name, new_state.name))  # type: ignore[attr-defined]


def test_listeners_hear_changes_in_every_process_as_it_notices(circuit_of: MakeCircuit) -> None:
    here, there = _Heard(), _Heard()
    circuit, other = circuit_of(FAST, listeners=[here]), circuit_of(FAST, listeners=[there])
    trip(circuit)
    assert there.changes == []
    other.admit()
    circuit.report(probe(circuit), successes=1)
    assert here.changes == [("closed", "open"), ("open", "half-open"), ("half-open", "closed")]
    other.admit()
    assert there.changes == [("closed", "open"), ("open", "closed")]
    assert circuit.state.name == circuit.current_state == pybreaker.STATE_CLOSED


def test_require_raises_pybreakers_exception(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    trip(circuit)
    with pytest.raises(pybreaker.CircuitBreakerError) as caught:
        circuit.require()
    assert isinstance(caught.value, CircuitDeniedError)
    assert caught.value.denied.reason == "circuit"


def test_pybreakers_own_ways_to_change_it_are_refused(circuit_of: MakeCircuit) -> None:
    circuit = circuit_of()
    for change in (circuit.open, circuit.close, circuit.half_open, lambda: circuit.call(print)):
        with pytest.raises(TypeError):
            change()
    assert isinstance(circuit.admit(), Admitted)


def test_making_a_circuit_contacts_nothing() -> None:
    link = RedisLink("redis://127.0.0.1:1/0")
    Circuit(link, provider="ches", credential="a1")
    assert link.reachable
