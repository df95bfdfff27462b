from collections.abc import Callable, Iterator

import pytest
import redis

from shared.coordination.heartbeat import Heartbeat, Identity, Worker, alive, list_queues, list_workers
from shared.coordination.redis import RedisLink
from tests.integration.coordination.conftest import LonelyRedis
from tests.support.waiting import wait_until

Beat = Callable[..., Heartbeat]


def identity(id_: str = "w1", **more: object) -> Identity:
    fixed = {"name": "worker_send.1", "kind": "worker_send", "version": "1.2.3", "queues": ("email", "sms")}
    return Identity(id=id_, **{**fixed, "threads": 8, "providers": ("ches:a1",), **more})


@pytest.fixture
def heartbeat_of(link: RedisLink, namespace: str) -> Iterator[Beat]:
    started: list[Heartbeat] = []

    def make(who: Identity | None = None, **more: object) -> Heartbeat:
        heartbeat = Heartbeat(link, who or identity(), namespace=namespace, **{"interval_s": 0.1, **more})
        started.append(heartbeat)
        return heartbeat

    yield make
    for heartbeat in started:
        heartbeat.stop()


@pytest.fixture
def listed(link: RedisLink, namespace: str) -> Callable[[], list[Worker]]:
    return lambda: list_workers(link, namespace=namespace)


Listed = Callable[[], list[Worker]]


def test_a_worker_says_who_it_is(heartbeat_of: Beat, listed: Listed) -> None:
    assert listed() == []
    who = identity()
    heartbeat_of(who).start()
    (worker,) = wait_until(listed)
    assert worker.identity == who
    assert (worker.state, worker.seconds_left, worker.busy) == ("running", None, 0)
    assert worker.beat_age_s < 5


def test_consumers_show_whether_they_get_anywhere(heartbeat_of: Beat, listed: Listed) -> None:
    """A zombie beats and does not consume: its progress grows old while the beat stays young."""
    heartbeat = heartbeat_of()
    heartbeat.progress("thread-1", busy=True)
    heartbeat.progress("thread-2", busy=False)
    heartbeat.start()

    def grown_old() -> Worker | None:
        workers = listed()
        return workers[0] if workers and workers[0].consumers[0].progress_age_s > 0.5 else None

    worker = wait_until(grown_old)
    assert worker.busy == 1
    assert [(consumer.name, consumer.busy) for consumer in worker.consumers] == [
        ("thread-1", True),
        ("thread-2", False),
    ]
    assert worker.beat_age_s < worker.consumers[0].progress_age_s


def test_a_draining_worker_says_so_at_once_with_the_seconds_left(heartbeat_of: Beat, listed: Listed) -> None:
    heartbeat = heartbeat_of(interval_s=60)
    heartbeat.start()
    wait_until(listed)
    heartbeat.drain(25)
    worker = wait_until(lambda: next((w for w in listed() if w.state == "draining"), None))
    assert worker.seconds_left is not None
    assert 20 < worker.seconds_left <= 25


def test_a_clean_exit_leaves_the_list_at_once(
    heartbeat_of: Beat, listed: Listed, raw: redis.Redis, namespace: str
) -> None:
    heartbeat = heartbeat_of()
    heartbeat.start()
    wait_until(listed)
    heartbeat.stop()
    assert listed() == []
    assert raw.keys(f"{namespace}:*") == [f"{namespace}:queues"], "its queues are remembered: nobody consumes them now"


def test_a_silent_worker_grows_old_and_then_leaves(heartbeat_of: Beat, listed: Listed) -> None:
    heartbeat_of(identity("dead"), ttl_s=1.0).beat()
    living = heartbeat_of(identity("living", name="worker_send.2"))
    living.start()
    wait_until(lambda: any(worker.identity.id == "dead" and worker.beat_age_s > 0.3 for worker in listed()))
    assert alive(listed(), queues=("email", "sms"), within_s=0.3) <= 1
    wait_until(lambda: [worker.identity.id for worker in listed()] == ["living"])


def test_the_list_is_sorted_and_counted_by_queue(heartbeat_of: Beat, listed: Listed) -> None:
    for id_, name, queues in (("b", "z.1", ("email",)), ("c", "a.2", ("email", "sms")), ("a", "a.1", ("ops",))):
        heartbeat_of(identity(id_, name=name, queues=queues)).beat()
    assert [worker.identity.name for worker in listed()] == ["a.1", "a.2", "z.1"]
    assert alive(listed(), queues=("email", "sms"), within_s=60) == 2


def test_beats_go_on_when_redis_comes_back(lonely_redis: LonelyRedis) -> None:
    link = RedisLink(lonely_redis.url, ask_again_s=0.05)
    also: list[None] = []
    heartbeat = Heartbeat(link, identity(), interval_s=0.05, also=lambda: also.append(None))
    heartbeat.start()
    wait_until(lambda: link.reachable and list_workers(link))
    lonely_redis.kill()
    wait_until(lambda: not link.reachable)
    told = len(also)
    wait_until(lambda: len(also) > told + 2)
    lonely_redis.start()
    reader = RedisLink(lonely_redis.url)
    wait_until(lambda: list_workers(reader))
    heartbeat.stop()


def test_stopping_without_redis_is_quiet(lonely_redis: LonelyRedis) -> None:
    heartbeat = Heartbeat(RedisLink(lonely_redis.url), identity())
    lonely_redis.kill()
    heartbeat.stop()


def test_queues_are_known_from_the_workers_that_consumed_them(
    heartbeat_of: Beat, link: RedisLink, namespace: str, raw: redis.Redis
) -> None:
    heartbeat_of(identity(queues=("email", "sms"))).beat()
    heartbeat_of(identity("w2", queues=("ops",)), paused=lambda: ["ops"]).beat()
    assert set(list_queues(link, namespace=namespace)) == {"email", "sms", "ops"}
    (paused,) = [worker.paused for worker in list_workers(link, namespace=namespace) if worker.identity.id == "w2"]
    assert paused == ("ops",)

    raw.zadd(f"{namespace}:queues", {"sms": 1})
    heartbeat_of(identity("w2", queues=("ops",))).beat()
    assert set(list_queues(link, namespace=namespace)) == {"email", "ops"}, (
        "after a week without a worker it is no more"
    )
