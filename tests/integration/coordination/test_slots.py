import threading
from collections.abc import Callable

import pytest
import redis

from shared.coordination.redis import RedisLink
from shared.coordination.slots import Slots, window_token
from shared.domain.states import Lane
from tests.support.waiting import wait_until

MakeSlots = Callable[..., Slots]


@pytest.fixture
def slots_of(link: RedisLink, namespace: str) -> MakeSlots:
    def make(cap: int | None, *, reserved: int = 0, lease_s: float = 30.0) -> Slots:
        return Slots(
            link,
            provider="ches",
            credential="a1",
            cap=cap,
            reserved=reserved,
            lease_s=lease_s,
            namespace=namespace,
        )

    return make


def single() -> str:
    return window_token(Lane.SINGLE)


def bulk() -> str:
    return window_token(Lane.BULK)


def test_a_window_gets_all_some_or_none(slots_of: MakeSlots) -> None:
    slots = slots_of(5)
    assert slots.acquire(single(), 3) == 3
    assert slots.acquire(single(), 3) == 2
    assert slots.acquire(single(), 3) == 0
    assert slots.in_flight().all == 5


def test_bulk_leaves_the_reserved_share_to_single_sends(slots_of: MakeSlots) -> None:
    slots = slots_of(5, reserved=1)
    assert slots.acquire(bulk(), 25) == 4
    assert slots.acquire(bulk(), 25) == 0
    assert slots.acquire(single(), 25) == 1
    assert (slots.in_flight().all, slots.in_flight().bulk) == (5, 4)


def test_bulk_moves_even_under_a_cap_of_one(slots_of: MakeSlots) -> None:
    assert slots_of(1, reserved=1).acquire(bulk(), 25) == 1


def test_single_sends_may_use_the_whole_cap(slots_of: MakeSlots) -> None:
    assert slots_of(5, reserved=2).acquire(single(), 25) == 5


def test_slots_come_back_one_by_one_as_calls_end(slots_of: MakeSlots) -> None:
    slots = slots_of(5)
    token = single()
    slots.acquire(token, 5)
    assert slots.release(token, 1) == 4
    assert slots.acquire(single(), 5) == 1
    assert slots.release(token, 4) == 0


def test_giving_back_twice_never_goes_below_zero(slots_of: MakeSlots) -> None:
    slots = slots_of(2)
    first, second = single(), single()
    slots.acquire(first, 1)
    slots.acquire(second, 1)
    for _ in range(3):
        assert slots.release(first, 99) == 0
    assert slots.in_flight().all == 1
    assert slots.acquire(single(), 9) == 1


def test_a_dead_holders_slots_are_free_after_its_lease(slots_of: MakeSlots) -> None:
    slots = slots_of(2, lease_s=1.0)
    slots.acquire(single(), 2)
    assert slots.acquire(single(), 1) == 0
    assert wait_until(lambda: slots.acquire(single(), 2)) == 2


def test_a_slow_holder_that_renews_keeps_its_slots(slots_of: MakeSlots, raw: redis.Redis) -> None:
    """Lease shorter than the work (dask/distributed#4057): never more than the cap in flight."""
    slots = slots_of(2, lease_s=1.0)
    token = single()
    slots.acquire(token, 2)
    started = _server_s(raw)

    def renewed_past_the_lease() -> bool:
        assert slots.renew(token, 2)
        assert slots.acquire(single(), 1) == 0
        return _server_s(raw) > started + 2.2

    wait_until(renewed_past_the_lease)
    assert slots.in_flight().all == 2


def test_what_a_lapsed_holder_gives_back_is_not_another_ones(slots_of: MakeSlots) -> None:
    slots = slots_of(2, lease_s=0.5)
    lapsed, later = single(), single()
    slots.acquire(lapsed, 2)
    wait_until(lambda: slots.acquire(later, 2))
    slots.release(lapsed, 2)
    slots.renew(later, 2)
    assert slots.acquire(single(), 1) == 0


def test_a_renewal_after_redis_was_emptied_counts_the_calls_again(
    slots_of: MakeSlots, raw: redis.Redis, namespace: str
) -> None:
    slots = slots_of(2)
    token = single()
    slots.acquire(token, 2)
    raw.delete(*raw.keys(f"{namespace}:*"))
    assert not slots.renew(token, 2)
    assert slots.acquire(single(), 1) == 0


def test_a_lost_lease_key_frees_its_counts(slots_of: MakeSlots, raw: redis.Redis, namespace: str) -> None:
    slots = slots_of(2)
    slots.acquire(single(), 2)
    raw.delete(f"{namespace}:{{ches:a1}}:slots")
    assert slots.acquire(single(), 2) == 2


def test_without_a_cap_redis_is_not_asked(slots_of: MakeSlots) -> None:
    link = RedisLink("redis://127.0.0.1:1/0")
    for cap in (0, None):
        slots = Slots(link, provider="ches", credential="a1", cap=cap)
        assert slots.acquire(single(), 100) == 100
        assert slots.release(single(), 100) == 0
        assert slots.renew(single(), 1)


def test_threads_never_hold_more_than_the_cap_together(slots_of: MakeSlots) -> None:
    slots = slots_of(5, reserved=1)
    lock = threading.Lock()
    in_flight, highest = 0, 0

    def work(lane: Lane) -> None:
        nonlocal in_flight, highest
        for _ in range(100):
            token = window_token(lane)
            got = slots.acquire(token, 3)
            with lock:
                in_flight += got
                highest = max(highest, in_flight)
            for _ in range(got):
                with lock:
                    in_flight -= 1
                slots.release(token, 1)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in (Lane.SINGLE, Lane.BULK) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < highest <= 5
    assert slots.in_flight().all == 0


def _server_s(raw: redis.Redis) -> float:
    seconds, microseconds = raw.time()
    return float(seconds) + microseconds / 1e6
