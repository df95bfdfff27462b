from collections.abc import Callable, Iterator

import pytest
import redis

from shared.coordination.circuit import Admitted, Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.guard import Entered, Guards, Held
from shared.coordination.redis import RedisLink
from shared.domain.states import Lane
from tests.support.waiting import wait_until

FAST = CircuitPolicy(open_s=0.1, probe_lease_s=30)

MakeGuards = Callable[..., Guards]


@pytest.fixture
def guards_of(link: RedisLink, namespace: str) -> Iterator[MakeGuards]:
    """Guards as another process would make them: the same keys, nothing shared in memory."""
    made: list[Guards] = []

    def make(*, credential: str = "a1", **more: object) -> Guards:
        made.append(Guards(link, provider="ches", credential=credential, namespace=namespace, **more))
        return made[-1]

    yield make
    for guards in made:
        guards.close()


def entered(guards: Guards, want: int = 25, lane: Lane = Lane.BULK) -> Entered:
    answer = guards.enter(lane, want)
    assert isinstance(answer, Entered), answer
    return answer


def held(guards: Guards, want: int = 25, lane: Lane = Lane.BULK) -> Held:
    answer = guards.enter(lane, want)
    assert isinstance(answer, Held), answer
    return answer


def probing(guards: Guards) -> Entered:
    """The probe of an open circuit, once its time has come."""

    def ask() -> Entered | None:
        answer = guards.enter(Lane.BULK, 25)
        return answer if isinstance(answer, Entered) and isinstance(answer.permit, Probe) else None

    return wait_until(ask)


def commands(raw: redis.Redis) -> int:
    return int(raw.info("stats")["total_commands_processed"])


def test_a_window_gets_what_the_cap_has_left(guards_of: MakeGuards) -> None:
    guards, other = guards_of(cap=5, reserved=1), guards_of(cap=5, reserved=1)
    first = entered(guards)
    assert (first.slots, first.alone) == (4, False)
    assert held(other).reason == "cap"
    assert entered(other, lane=Lane.SINGLE).slots == 1
    guards.report(first, ended=3, successes=3)
    assert entered(other).slots == 3


def test_without_a_cap_a_window_gets_what_it_wants(guards_of: MakeGuards) -> None:
    assert entered(guards_of(), want=100).slots == 100


def test_a_closed_gate_holds_every_process(guards_of: MakeGuards) -> None:
    guards_of(cap=5).throttle(20)
    answer = held(guards_of(cap=5))
    assert answer.reason == "gate"
    assert 19 < answer.retry_in_s <= 20
    assert guards_of().slots.in_flight().all == 0


def test_failures_of_a_window_open_the_circuit_for_every_process(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=50)
    window = entered(guards)
    guards.report(window, ended=4, failures=4)
    assert isinstance(entered(guards_of(cap=50)).permit, Admitted)
    guards.leave(window, failures=1)
    answer = held(guards_of(cap=50))
    assert answer.reason == "circuit"
    assert 29 < answer.retry_in_s <= 30


def test_a_probe_is_one_call_whatever_is_wanted(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=5, policy=FAST)
    guards.leave(entered(guards), failures=5)
    window = probing(guards)
    assert window.slots == 1
    assert held(guards_of(cap=5, policy=FAST)).reason == "circuit"
    guards.leave(window, successes=1)
    assert entered(guards).slots == 5


def test_leaving_without_a_result_hands_the_probe_on(guards_of: MakeGuards) -> None:
    """An interrupt between enter and the call: `finally: leave` is all that runs."""
    guards = guards_of(cap=5, policy=FAST)
    guards.leave(entered(guards), failures=5)
    guards.leave(probing(guards))
    assert isinstance(entered(guards).permit, Probe)
    assert guards.circuit.snapshot().state == "half-open"


def test_a_probe_that_finds_no_slot_is_not_taken(guards_of: MakeGuards) -> None:
    guards, other = guards_of(cap=1, policy=FAST), guards_of(cap=1, policy=FAST)
    busy = entered(guards)
    other.circuit.report(Admitted("somebody", busy.permit.epoch), failures=5)
    wait_until(lambda: held(other).reason == "cap")
    assert other.circuit.snapshot().state == "open"
    guards.leave(busy)
    assert isinstance(entered(other).permit, Probe)


def test_a_hold_is_told_before_a_closed_gate(guards_of: MakeGuards) -> None:
    guards = guards_of()
    guards.throttle(20)
    guards.circuit.hold(by="kim", reason="maintenance")
    answer = held(guards)
    assert answer.reason == "hold"
    assert answer.retry_in_s <= 5


def test_a_configuration_error_isolates_for_every_process(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=5)
    window = entered(guards)
    guards.isolate(window, reason="password refused", code="auth")
    guards.leave(window)
    assert held(guards_of(cap=5)).reason == "isolated"
    assert guards.slots.in_flight().all == 0


def test_another_credential_is_not_concerned(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=5)
    guards.throttle(20)
    guards.leave(entered(guards_of(cap=5, credential="b2")))
    assert held(guards).reason == "gate"


def test_leaving_twice_gives_back_once(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=5)
    window, other = entered(guards, want=2), entered(guards, want=3)
    guards.leave(window)
    guards.leave(window)
    guards.report(window, ended=2, successes=2)
    assert guards.slots.in_flight().all == other.slots == 3


def test_leases_of_windows_in_flight_are_renewed(guards_of: MakeGuards, raw: redis.Redis) -> None:
    """The lease is a fraction of the calls' time; nobody else may have the slots meanwhile."""
    guards = guards_of(cap=2, lease_s=1.0)
    other = guards_of(cap=2, lease_s=1.0)
    window = entered(guards)
    until = _server_s(raw) + 2.2

    def still_held() -> bool:
        assert held(other).reason == "cap"
        return _server_s(raw) > until

    wait_until(still_held)
    guards.leave(window)
    assert entered(other).slots == 2


def test_a_slow_probe_is_renewed(guards_of: MakeGuards, raw: redis.Redis) -> None:
    policy = CircuitPolicy(open_s=0.05, probe_lease_s=1.0)
    guards, other = guards_of(policy=policy), guards_of(policy=policy)
    guards.leave(entered(guards), failures=5)
    window = probing(guards)
    until = _server_s(raw) + 2.2

    def still_probing() -> bool:
        assert held(other).reason == "circuit"
        return _server_s(raw) > until

    wait_until(still_probing)
    guards.leave(window, successes=1)
    assert isinstance(entered(other).permit, Admitted)


def test_a_process_that_stops_renewing_loses_its_slots(guards_of: MakeGuards) -> None:
    guards = guards_of(cap=2, lease_s=0.3)
    entered(guards)
    guards.close()
    wait_until(lambda: isinstance(guards_of(cap=2, lease_s=0.3).enter(Lane.BULK, 2), Entered))


def test_windows_in_flight_are_counted_again_after_redis_was_emptied(
    guards_of: MakeGuards, raw: redis.Redis, namespace: str
) -> None:
    guards = guards_of(cap=2)
    entered(guards)
    raw.delete(*raw.keys(f"{namespace}:*"))
    assert guards.renew() == 1
    assert held(guards_of(cap=2)).reason == "cap"


def test_a_window_costs_two_commands_from_us_and_one_without_a_cap(lonely_redis: object, namespace: str) -> None:
    link = RedisLink(lonely_redis.url)  # type: ignore[attr-defined]
    for cap, calls in ((50, 2), (None, 1)):
        guards = Guards(link, provider="ches", credential="a1", cap=cap, namespace=namespace)
        guards.leave(entered(guards))
        with lonely_redis.client() as client:  # type: ignore[attr-defined]
            before = _calls(client)
            guards.leave(entered(guards), successes=25)
            assert _calls(client) - before == calls
        guards.close()


def _calls(client: redis.Redis) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def _server_s(raw: redis.Redis) -> float:
    seconds, microseconds = raw.time()
    return float(seconds) + microseconds / 1e6
