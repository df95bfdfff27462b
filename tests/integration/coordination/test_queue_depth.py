from datetime import UTC, datetime, timedelta
from uuid import uuid4

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from shared.coordination.queue_depth import Queues
from shared.coordination.redis import RedisLink


@pytest.fixture
def broker(raw: redis.Redis, redis_server_url: str, namespace: str) -> RedisBroker:
    """Dramatiq's own, so that a change of its layout shows here."""
    broker = RedisBroker(client=redis.Redis.from_url(redis_server_url), namespace=f"{namespace}:broker", middleware=[])
    for queue in ("email", "ops"):
        broker.declare_queue(queue)
    return broker


@pytest.fixture
def queues(link: RedisLink, namespace: str) -> Queues:
    return Queues(link, namespace=f"{namespace}:broker")


def enqueue(broker: RedisBroker, queue: str = "email", *, delay: int | None = None) -> str:
    message: dramatiq.Message[None] = dramatiq.Message(
        queue_name=queue, actor_name="nothing", args=(), kwargs={}, options={}, message_id=str(uuid4())
    )
    return str(broker.enqueue(message, delay=delay).options["redis_message_id"])


def test_an_unknown_queue_is_empty(queues: Queues) -> None:
    (depth,) = queues.depths(["email"])
    assert (depth.ready, depth.unacked, depth.delayed, depth.dead, depth.oldest_at) == (0, 0, 0, 0, None)
    assert queues.depths([]) == []


def test_each_kind_is_counted_as_dramatiq_moves_it(broker: RedisBroker, queues: Queues) -> None:
    for _ in range(3):
        enqueue(broker)
    enqueue(broker, delay=60_000)
    enqueue(broker, "ops")
    email, ops = queues.depths(["email", "ops"])
    assert (email.queue, email.ready, email.unacked, email.delayed, email.dead) == ("email", 3, 0, 1, 0)
    assert (ops.queue, ops.ready) == ("ops", 1)

    consumer = broker.consume("email", prefetch=2, timeout=100)
    first, second = next(consumer), next(consumer)
    (email,) = queues.depths(["email"])
    assert (email.ready, email.unacked) == (1, 2)

    consumer.ack(first)
    consumer.nack(second)
    (email,) = queues.depths(["email"])
    assert (email.ready, email.unacked, email.dead) == (1, 0, 1)


def test_the_oldest_is_the_head_of_the_queue(broker: RedisBroker, queues: Queues) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    enqueue(broker)
    after = datetime.now(UTC)
    enqueue(broker)
    (depth,) = queues.depths(["email"])
    assert depth.oldest_at is not None
    assert before <= depth.oldest_at <= after


def test_a_message_exists_until_it_is_acknowledged(broker: RedisBroker, queues: Queues) -> None:
    running, waiting = enqueue(broker), enqueue(broker)
    consumer = broker.consume("email", prefetch=1, timeout=100)
    message = next(consumer)
    asked = [("email", running), ("email", waiting), ("email", "nobody"), ("ops", waiting)]
    assert queues.existing(asked) == {("email", running), ("email", waiting)}
    consumer.ack(message)
    assert queues.existing(asked) == {("email", waiting)}
    assert queues.existing([]) == set()


def test_a_foreign_message_at_the_head_is_counted_without_a_time(
    queues: Queues, raw: redis.Redis, namespace: str
) -> None:
    raw.hset(f"{namespace}:broker:email.msgs", "x", "not json")
    raw.rpush(f"{namespace}:broker:email", "x")
    (depth,) = queues.depths(["email"])
    assert (depth.ready, depth.oldest_at) == (1, None)
