"""What a process does while Redis cannot be asked."""

import logging
import time
from collections.abc import Iterator

import pytest

from shared.coordination.circuit import Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.guard import Entered, Guards, Held
from shared.coordination.redis import RedisLink
from shared.domain.states import Lane
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until


@pytest.fixture
def link(lonely_redis: LonelyRedis) -> Iterator[RedisLink]:
    link = RedisLink(lonely_redis.url, ask_again_s=0.2)
    yield link
    link.close()


def guards_on(link: RedisLink, cap: int | None = 20, **more: object) -> Guards:
    return Guards(link, provider="ches", credential="a1", cap=cap, **more)


def entered(guards: Guards, want: int = 25) -> Entered:
    answer = guards.enter(Lane.BULK, want)
    assert isinstance(answer, Entered), answer
    return answer


def held(guards: Guards) -> Held:
    answer = guards.enter(Lane.BULK, 25)
    assert isinstance(answer, Held), answer
    return answer


def test_it_goes_on_with_its_share_of_the_cap(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link)
    guards.known_workers(4)
    guards.leave(entered(guards))
    lonely_redis.kill()
    window = entered(guards)
    assert (window.slots, window.alone) == (5, True)
    assert held(guards).reason == "cap"
    guards.report(window, ended=2, successes=2)
    assert entered(guards).slots == 2
    assert guards.windows_alone == 2


def test_the_share_is_at_least_one(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link, cap=5)
    guards.known_workers(40)
    lonely_redis.kill()
    assert entered(guards).slots == 1


def test_calls_in_flight_when_redis_went_count_against_the_share(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link)
    guards.known_workers(4)
    window = entered(guards)
    assert window.slots == 20
    lonely_redis.kill()
    assert held(guards).reason == "cap"
    guards.report(window, ended=18, successes=18)
    assert entered(guards).slots == 3


def test_a_frozen_redis_costs_one_quarter_second_for_a_whole_window(lonely_redis: LonelyRedis) -> None:
    guards = guards_on(RedisLink(lonely_redis.url, ask_again_s=30))
    guards.leave(entered(guards))
    lonely_redis.freeze()
    try:
        started = time.monotonic()
        for _ in range(50):
            window = entered(guards)
            guards.report(window, ended=1, failures=0)
            guards.leave(window)
        assert time.monotonic() - started < 0.5
    finally:
        lonely_redis.thaw()


def test_a_dead_provider_is_not_hammered(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link, policy=CircuitPolicy(open_s=0.5))
    lonely_redis.kill()
    window = entered(guards)
    guards.leave(window, failures=5)
    assert held(guards).reason == "circuit"

    def probing() -> Entered | None:
        answer = guards.enter(Lane.BULK, 25)
        return answer if isinstance(answer, Entered) else None

    probe = wait_until(probing)
    assert isinstance(probe.permit, Probe)
    assert probe.slots == 1
    assert held(guards).reason == "circuit"
    guards.leave(probe, successes=1)
    assert entered(guards).slots == 20


def test_a_gate_closed_without_redis_holds_this_process(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link)
    lonely_redis.kill()
    assert guards.throttle(20) == 20
    assert held(guards).reason == "gate"


@pytest.mark.parametrize("reason", ["hold", "circuit", "isolated", "gate"])
def test_losing_redis_does_not_open_what_was_shut(lonely_redis: LonelyRedis, link: RedisLink, reason: str) -> None:
    guards, other = guards_on(link), guards_on(link)
    match reason:
        case "hold":
            other.circuit.hold(by="kim", reason="maintenance")
        case "circuit":
            other.leave(entered(other), failures=5)
        case "isolated":
            other.circuit.isolate(reason="password refused", code="auth")
        case "gate":
            other.throttle(20)
    assert held(guards).reason == reason
    lonely_redis.kill()
    assert held(guards).reason == reason


def test_redis_back_again_hears_of_the_calls_in_flight(lonely_redis: LonelyRedis, link: RedisLink) -> None:
    guards = guards_on(link, cap=2, lease_s=0.3)
    lonely_redis.kill()
    entered(guards)
    lonely_redis.start()
    other = guards_on(RedisLink(lonely_redis.url, timeout_s=5), cap=2)
    wait_until(lambda: other.slots.in_flight().all == 2)
    assert held(other).reason == "cap"


def test_it_is_warned_about_once(lonely_redis: LonelyRedis, link: RedisLink, caplog: pytest.LogCaptureFixture) -> None:
    guards = guards_on(link, cap=None)
    caplog.set_level(logging.WARNING)
    lonely_redis.kill()
    for _ in range(20):
        guards.leave(entered(guards), successes=25)
    assert [record.getMessage() for record in caplog.records] == ["redis_unreachable"]
    assert guards.windows_alone == 20
