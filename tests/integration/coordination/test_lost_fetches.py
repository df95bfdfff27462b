"""Messages that Redis handed out and nobody received."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from shared.domain.states import Channel
from shared.jobs import Broker, Jobs, QueueName, make_broker


@pytest.fixture
def broker(redis_url: str) -> Iterator[Broker]:
    broker = make_broker(redis_url, namespace="tidings", heartbeat_timeout_ms=20_000)
    broker.declare_queue(QueueName.EMAIL.value)
    yield broker
    broker.client.connection_pool.disconnect()


def enqueue(broker: Broker) -> None:
    Jobs(broker).work_chain(queue=QueueName.EMAIL, send_id=uuid4(), channel=Channel.EMAIL, chain_no=0, token=uuid4())


def received(consumer: Any) -> list[str]:
    """What a consumer gives until it finds nothing twice."""
    found = []
    misses = 0
    while misses < 2:
        message = next(consumer)
        misses += message is None
        if message is not None:
            found.append(message.options["redis_message_id"])
    return found


def test_a_message_whose_fetch_was_never_answered_comes_to_the_next_consumer_of_the_process(broker: Broker) -> None:
    enqueue(broker)
    assert len(broker.do_fetch("email", 1)) == 1  # the answer to this never arrived
    assert len(received(broker.consume("email", prefetch=2, timeout=10))) == 1


def test_messages_in_the_cache_of_a_consumer_that_ends_come_to_the_next_one(broker: Broker) -> None:
    for _ in range(5):
        enqueue(broker)
    first = broker.consume("email", prefetch=5, timeout=10)
    begun = next(first)
    rest = received(broker.consume("email", prefetch=8, timeout=10))
    assert len(rest) == 4
    assert begun.options["redis_message_id"] not in rest


def test_a_message_being_worked_on_is_not_given_out_again(broker: Broker) -> None:
    enqueue(broker)
    first = broker.consume("email", prefetch=2, timeout=10)
    [begun] = [message for message in (next(first), next(first)) if message is not None]
    assert received(broker.consume("email", prefetch=2, timeout=10)) == []
    first.ack(begun)
    assert broker.in_hand["email"] == set()
    assert received(broker.consume("email", prefetch=2, timeout=10)) == []
