import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import redis

from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.coordination.single_flight import FlightLost, SingleFlight
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until

MakeFlight = Callable[..., SingleFlight]


@pytest.fixture
def flight_of(link: RedisLink, namespace: str) -> MakeFlight:
    def make(lease_s: float = 30.0) -> SingleFlight:
        return SingleFlight(link, name="reconcile", lease_s=lease_s, namespace=namespace)

    return make


def test_one_holds_and_the_others_do_not_wait(flight_of: MakeFlight) -> None:
    with flight_of().hold() as first, flight_of().hold() as second:
        assert first is not None
        assert second is None
    with flight_of().hold() as third:
        assert third is not None


def test_a_fence_grows_with_every_holder_even_over_an_emptied_redis(
    flight_of: MakeFlight, raw: redis.Redis, namespace: str
) -> None:
    fences = []
    for _ in range(3):
        with flight_of().hold() as flight:
            assert flight is not None
            fences.append(flight.fence)
        raw.delete(*raw.keys(f"{namespace}:*"))
    with flight_of().hold() as flight:
        assert flight is not None
        fences.append(flight.fence)
    assert fences == sorted(set(fences))


def test_it_is_renewed_past_its_lease(flight_of: MakeFlight, raw: redis.Redis) -> None:
    with flight_of(1.0).hold() as flight:
        assert flight is not None
        until = raw.time()[0] + 3

        def past_the_lease() -> bool:
            with flight_of(1.0).hold() as other:
                assert other is None
            flight.check()
            return raw.time()[0] >= until

        wait_until(past_the_lease)


def test_a_holder_notices_that_redis_was_emptied_and_stops(
    flight_of: MakeFlight, raw: redis.Redis, namespace: str
) -> None:
    with flight_of(0.3).hold() as flight:
        assert flight is not None
        raw.delete(f"{namespace}:{{reconcile}}:lock")
        wait_until(lambda: not flight.held)
        with pytest.raises(FlightLost):
            flight.check()
        with flight_of().hold() as second:
            assert second is not None
            assert second.fence > flight.fence


def test_a_foreign_lock_is_neither_renewed_nor_released(
    flight_of: MakeFlight, raw: redis.Redis, namespace: str
) -> None:
    lock = f"{namespace}:{{reconcile}}:lock"
    with flight_of(0.3).hold() as flight:
        assert flight is not None
        raw.set(lock, "another's", px=60_000)
        wait_until(lambda: not flight.held)
    assert raw.get(lock) == "another's"
    assert raw.pttl(lock) > 50_000


def test_the_lock_of_a_killed_holder_lapses(flight_of: MakeFlight, redis_server_url: str, namespace: str) -> None:
    program = (
        "import sys; from shared.coordination.redis import RedisLink\n"
        "from shared.coordination.single_flight import SingleFlight\n"
        f"with SingleFlight(RedisLink(sys.argv[1], timeout_s=5), name='reconcile', lease_s=0.5,"
        f" namespace='{namespace}').hold() as flight:\n"
        "    print(flight.held, flush=True); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", program, redis_server_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with flight_of().hold() as second:
            assert second is None
        holder.send_signal(signal.SIGKILL)

    def taken() -> bool:
        with flight_of().hold() as flight:
            return flight is not None

    wait_until(taken)


def test_a_holder_cut_off_from_redis_stops_when_its_lease_is_over(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url)
    with SingleFlight(link, name="reconcile", lease_s=0.5).hold() as flight:
        assert flight is not None
        lonely_redis.kill()
        wait_until(lambda: not flight.held, timeout=2)


def test_without_redis_nobody_can_say_who_holds_it(lonely_redis: LonelyRedis) -> None:
    lonely_redis.kill()
    with pytest.raises(RedisUnavailable), SingleFlight(RedisLink(lonely_redis.url), name="reconcile").hold():
        raise AssertionError("entered without a lock")
