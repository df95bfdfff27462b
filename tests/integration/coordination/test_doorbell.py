import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from shared.coordination.doorbell import Doorbell, listen
from shared.coordination.redis import RedisLink, RedisUnavailable
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until

Rings = "queue.Queue[tuple[float, frozenset[str]]]"


@pytest.fixture
def doorbell_of(link: RedisLink, namespace: str) -> Iterator[Callable[[float], Doorbell]]:
    made: list[Doorbell] = []

    def make(interval_s: float) -> Doorbell:
        made.append(Doorbell(link, interval_s=interval_s, namespace=namespace))
        return made[-1]

    yield make
    for doorbell in made:
        doorbell.close()


@pytest.fixture
def heard(link: RedisLink, namespace: str) -> Iterator[Rings]:
    """What one subscriber hears, with the time."""
    rings: queue.Queue[tuple[float, frozenset[str]]] = queue.Queue()
    listening, done = threading.Event(), threading.Event()

    def subscribe() -> None:
        for panels in listen(link, tick_s=0.05, namespace=namespace):
            listening.set()
            if panels:
                rings.put((time.monotonic(), panels))
            if done.is_set():
                return

    thread = threading.Thread(target=subscribe)
    thread.start()
    assert listening.wait(10)
    yield rings
    done.set()
    thread.join()


def test_the_first_ring_is_heard_at_once(doorbell_of: Callable[[float], Doorbell], heard: Rings) -> None:
    rung_at = time.monotonic()
    doorbell_of(30).ring("queues", "workers")
    at, panels = heard.get(timeout=10)
    assert panels == {"queues", "workers"}
    assert at - rung_at < 5


def test_the_fleet_rings_once_per_interval_and_loses_nothing(
    doorbell_of: Callable[[float], Doorbell], heard: Rings
) -> None:
    one, two = doorbell_of(1.0), doorbell_of(1.0)
    one.ring("queues")
    first_at, panels = heard.get(timeout=10)
    assert panels == {"queues"}
    for number in range(50):
        (one, two)[number % 2].ring(f"panel-{number % 10}")
    rest: set[str] = set()
    times = [first_at]
    while len(rest) < 10:
        at, panels = heard.get(timeout=10)
        times.append(at)
        rest |= panels
    assert rest == {f"panel-{n}" for n in range(10)}
    # The server spaces them; hearing may be late once and prompt the next time.
    assert all(later - earlier > 0.3 for earlier, later in pairwise(times))


def test_a_change_that_came_too_soon_is_told_without_another_ring(
    doorbell_of: Callable[[float], Doorbell], heard: Rings
) -> None:
    one, two = doorbell_of(0.3), doorbell_of(0.3)
    one.ring("queues")
    assert heard.get(timeout=10)[1] == {"queues"}
    two.ring("workers")
    assert heard.get(timeout=10)[1] == {"workers"}


def test_what_redis_never_heard_is_told_later(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url, ask_again_s=0.05)
    doorbell = Doorbell(link, interval_s=0.05)
    lonely_redis.kill()
    doorbell.ring("queues")
    wait_until(lambda: not link.reachable)
    lonely_redis.start()
    reader = RedisLink(lonely_redis.url)
    bells = listen(reader, tick_s=0.05)
    next(bells)
    doorbell.ring("workers")
    told: set[str] = set()
    while "workers" not in told:
        told |= next(bells)
    bells.close()
    doorbell.close()


def test_a_listener_hears_that_redis_is_gone(lonely_redis: LonelyRedis) -> None:
    bells = listen(RedisLink(lonely_redis.url), tick_s=0.05)
    assert next(bells) == frozenset()
    lonely_redis.kill()
    with pytest.raises(RedisUnavailable):
        wait_until(lambda: next(bells))
