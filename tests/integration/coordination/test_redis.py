import logging
import socket
import threading
import time
from contextlib import suppress

import pytest
import redis

from shared.coordination.gate import Gate
from shared.coordination.redis import RedisLink, RedisUnavailable, Script
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until

COUNT = Script("slots_count", "slots")
KEYS = ("leases", "counts")


def unanswered(link: RedisLink) -> float:
    """Seconds that one question without an answer took."""
    started = time.monotonic()
    with pytest.raises(RedisUnavailable):
        link.run(COUNT, keys=KEYS)
    return time.monotonic() - started


def test_a_script_the_server_forgot_is_sent_again(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url)
    link.run(COUNT, keys=KEYS)
    with lonely_redis.client() as client:
        client.script_flush()
    assert link.run(COUNT, keys=KEYS) == [0, 0]
    with lonely_redis.client() as client:
        assert client.script_exists(COUNT.sha) == [True]


def test_a_script_error_is_a_bug_and_not_an_outage(link: RedisLink) -> None:
    with pytest.raises(redis.ResponseError):
        link.pipeline([("LPUSH", "a-list-with-no-values")])
    assert link.reachable


def test_a_frozen_server_costs_a_quarter_second_once_and_then_nothing(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url, ask_again_s=30)
    link.run(COUNT, keys=KEYS)
    lonely_redis.freeze()
    try:
        assert 0.2 <= unanswered(link) < 0.5
        assert max(unanswered(link) for _ in range(100)) < 0.05
    finally:
        lonely_redis.thaw()


def test_a_frozen_server_costs_a_new_connection_no_more(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url)
    lonely_redis.freeze()
    try:
        assert unanswered(link) < 0.5
    finally:
        lonely_redis.thaw()


def test_one_thread_asks_a_frozen_server_again_for_all(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url, ask_again_s=0.1)
    lonely_redis.freeze()
    try:
        unanswered(link)
        waited: list[float] = []
        barrier = threading.Barrier(8)

        def ask() -> None:
            barrier.wait()
            waited.append(unanswered(link))

        wait_until(lambda: time.monotonic() >= link._ask_at)
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Longer than ask_again_s, so a second scout may set out while the first waits; never all eight.
        assert sum(seconds > 0.2 for seconds in waited) <= 2
    finally:
        lonely_redis.thaw()


def test_going_away_and_coming_back_are_told_once_each(
    lonely_redis: LonelyRedis, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[bool] = []
    link = RedisLink(lonely_redis.url, ask_again_s=0.05, on_change=changes.append)
    caplog.set_level(logging.WARNING, logger="shared.coordination.redis")
    link.run(COUNT, keys=KEYS)
    lonely_redis.kill()
    for _ in range(20):
        unanswered(link)
    assert not link.reachable

    lonely_redis.start()
    wait_until(lambda: _answered(link))

    assert changes == [False, True]
    assert [record.getMessage() for record in caplog.records] == ["redis_unreachable", "redis_reachable_again"]


def test_idle_connections_that_the_server_closed_are_no_outage(lonely_redis: LonelyRedis) -> None:
    """Hosted servers close what idles, and a restart closes all: each thread would find its own dead connection."""
    link = RedisLink(lonely_redis.url)
    barrier = threading.Barrier(6)

    def ask() -> None:
        barrier.wait()
        for _ in range(50):
            link.run(COUNT, keys=KEYS)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lonely_redis.kill()
    lonely_redis.start()
    for _ in range(20):
        assert link.run(COUNT, keys=KEYS) == [0, 0]


def test_a_server_out_of_memory_counts_as_unavailable(lonely_redis: LonelyRedis) -> None:
    with lonely_redis.client() as client:
        client.config_set("maxmemory", 1)
    link = RedisLink(lonely_redis.url)
    with pytest.raises(RedisUnavailable, match="OOM"):
        Gate(link, provider="ches", credential="a1").close(30)


def test_a_refused_password_is_unavailable_and_never_shown(
    lonely_redis: LonelyRedis, caplog: pytest.LogCaptureFixture
) -> None:
    url = lonely_redis.url.replace("redis://", "redis://:not-the-password@")
    with lonely_redis.client() as client:
        client.config_set("requirepass", "the-password")
    with pytest.raises(RedisUnavailable) as caught:
        RedisLink(url).run(COUNT, keys=KEYS)
    assert "password" not in str(caught.value)
    assert "password" not in caplog.text


def test_a_command_whose_answer_was_lost_is_not_repeated() -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_nothing() -> None:
            with suppress(OSError):  # the test is over
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        data = connection.recv(65536)
                        while data and b"EVALSHA" not in data:
                            connection.sendall(b"+OK\r\n" * data.count(b"*"))
                            data = connection.recv(65536)
                        received.append(data)

        threading.Thread(target=answer_nothing, daemon=True).start()
        link = RedisLink(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", ask_again_s=30)
        unanswered(link)
        wait_until(lambda: received)
    assert sum(data.count(b"EVALSHA") for data in received) == 1


def test_health_shows_an_eviction_policy_that_would_lose_queues(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url)
    assert link.health().eviction_policy == "noeviction"
    assert link.health().max_memory_bytes is None
    with lonely_redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", 100_000_000)
    health = link.health()
    assert (health.eviction_policy, health.max_memory_bytes) == ("allkeys-lru", 100_000_000)


def _answered(link: RedisLink) -> bool:
    try:
        link.run(COUNT, keys=KEYS)
    except RedisUnavailable:
        return False
    return True
