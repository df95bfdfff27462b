from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
import redis

from shared.coordination.minute_ring import MinuteRings
from shared.coordination.redis import RedisLink, RedisUnavailable
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until

MakeRings = Callable[..., MinuteRings]


@pytest.fixture
def rings_of(link: RedisLink, namespace: str) -> Iterator[MakeRings]:
    made: list[MinuteRings] = []

    def make(points: int = 60, **more: float) -> MinuteRings:
        made.append(MinuteRings(link, points=points, namespace=namespace, **{"flush_s": 60.0, **more}))
        return made[-1]

    yield make
    for rings in made:
        rings.close()


def sums(rings: MinuteRings, queue: str, minutes: int = 2) -> tuple[int, int, int]:
    """Over two minutes, since the current one may end in the middle of a test."""
    read = rings.read([queue], minutes=minutes)[queue]
    return sum(m.added for m in read), sum(m.done for m in read), sum(m.failed for m in read)


def test_counts_of_all_processes_are_added(rings_of: MakeRings) -> None:
    for _ in range(3):
        rings = rings_of()
        rings.count("email", "added", 10)
        rings.count("email", "done", 8)
        rings.count("email", "failed")
        rings.count("sms", "added")
        rings.flush()
        rings.flush()
    assert sums(rings_of(), "email") == (30, 24, 3)
    assert sums(rings_of(), "sms") == (3, 0, 0)


def test_silent_minutes_are_zero_and_the_current_one_is_last(rings_of: MakeRings, raw: redis.Redis) -> None:
    read = rings_of().read(["email"], minutes=30)["email"]
    assert len(read) == 30
    assert sum(minute.added for minute in read) == 0
    assert {later.at - earlier.at for earlier, later in pairwise(read)} == {timedelta(minutes=1)}
    assert abs(read[-1].at.timestamp() - raw.time()[0]) < 62


def test_a_ring_keeps_no_more_than_its_points(rings_of: MakeRings, raw: redis.Redis, namespace: str) -> None:
    rings = rings_of(points=10)
    key = f"{namespace}:minutes:email"
    minute = raw.time()[0] // 60
    for back in range(10):
        raw.hset(key, (minute - back) % 10, f"{minute - back - 10} 5 5 5")
    rings.count("email", "added", 7)
    rings.flush()
    assert raw.hlen(key) == 10
    assert sums(rings, "email", minutes=100) == (7, 0, 0)
    assert len(rings.read(["email"], minutes=100)["email"]) == 10
    assert 0 < raw.ttl(key) <= 600


def test_the_thread_flushes(rings_of: MakeRings) -> None:
    rings = rings_of(flush_s=0.05)
    rings.count("email", "added")
    wait_until(lambda: sums(rings, "email") == (1, 0, 0))


def test_counts_outlive_an_outage(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url, ask_again_s=0.05)
    rings = MinuteRings(link, points=60, flush_s=60)
    rings.count("email", "added", 3)
    lonely_redis.kill()
    with pytest.raises(RedisUnavailable):
        rings.flush()
    rings.count("email", "added", 4)
    lonely_redis.start()
    wait_until(lambda: _flushed(rings))
    assert sums(rings, "email") == (7, 0, 0)
    rings.close()


def _flushed(rings: MinuteRings) -> bool:
    try:
        rings.flush()
    except RedisUnavailable:
        return False
    return True
