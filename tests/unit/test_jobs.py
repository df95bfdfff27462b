import inspect
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import dramatiq
import pytest
import redis
from dramatiq.errors import ConnectionClosed

from shared.domain.ids import new_send_id
from shared.domain.states import Channel, Lane
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName, _Consumer, make_broker, queue_for


class WrittenDown(Broker):
    """Keeps what would go to Redis; nothing listens at the broker's address."""

    def __init__(self, **options: Any) -> None:
        super().__init__(url="redis://127.0.0.1:1/0", middleware=[], **options)  # type: ignore[no-untyped-call]
        self.written: list[tuple[str, str, bytes]] = []

    def do_enqueue(self, queue_name: str, redis_message_id: str, message_data: bytes) -> None:
        self.written.append((queue_name, redis_message_id, message_data))

    def waiting(self, queue_name: str) -> int:
        return sum(queue == queue_name for queue, _, _ in self.written)


@pytest.fixture
def broker() -> WrittenDown:
    return WrittenDown()


TOKEN = UUID("ffffffff-ffff-4fff-8fff-ffffffffffff")
#: How to ask for the jobs that are not periodic.
ENQUEUE: dict[JobName, Callable[[Jobs], None]] = {
    JobName.INGEST: lambda jobs: jobs.ingest(new_send_id()),
    JobName.WORK_CHAIN: lambda jobs: jobs.work_chain(
        queue=QueueName.EMAIL_BULK, send_id=new_send_id(), channel=Channel.EMAIL, chain_no=63, token=TOKEN
    ),
}


@pytest.mark.parametrize("job", JobName)
def test_every_message_is_small_carries_the_version_and_only_ids(job: JobName, broker: WrittenDown) -> None:
    if job in ENQUEUE:
        ENQUEUE[job](Jobs(broker))
    else:
        Jobs(broker).periodic(job, slot=2**40)
    [(queue, _, data)] = broker.written
    assert len(data) < 512
    message = json.loads(data)
    assert message["actor_name"] == job
    assert message["kwargs"]["v"] == MESSAGE_VERSION
    assert message["args"] == []
    assert queue in set(QueueName)
    assert set(message["kwargs"]) <= {"v", "send_id", "channel", "chain_no", "token", "slot"}


def test_ticks_that_nobody_works_off_are_left_out_and_the_jobs_of_people_are_not(broker: WrittenDown) -> None:
    jobs = Jobs(broker)
    taken = [jobs.periodic(JobName.DUE_WORK, slot=slot) for slot in range(150)]
    assert (taken.count(True), len(broker.written)) == (100, 100)
    jobs.digest_run(TOKEN)
    assert len(broker.written) == 101


def test_a_chains_message_has_the_chains_token_as_its_id_in_redis(broker: WrittenDown) -> None:
    ENQUEUE[JobName.WORK_CHAIN](Jobs(broker))
    [(_, redis_message_id, data)] = broker.written
    assert redis_message_id == str(TOKEN)
    assert json.loads(data)["kwargs"]["token"] == str(TOKEN)


def test_other_messages_get_an_id_of_their_own_each(broker: WrittenDown) -> None:
    jobs = Jobs(broker)
    send = new_send_id()
    jobs.ingest(send)
    jobs.ingest(send)
    assert len({redis_message_id for _, redis_message_id, _ in broker.written}) == 2


def test_no_message_can_be_delayed(broker: WrittenDown) -> None:
    message: dramatiq.Message[None] = dramatiq.Message(
        queue_name="email", actor_name="work_chain", args=(), kwargs={}, options={}
    )
    for delay in (0, 1, 60_000):
        with pytest.raises(ValueError, match="Postgres"):
            broker.enqueue(message, delay=delay)
    assert broker.written == []


def test_no_enqueueing_function_takes_a_delay() -> None:
    for name, function in inspect.getmembers(Jobs, inspect.isfunction):
        assert not {"delay", "eta", "at"} & set(inspect.signature(function).parameters), name


@pytest.mark.parametrize(
    ("channel", "lane", "queue"),
    [
        (Channel.EMAIL, Lane.SINGLE, "email"),
        (Channel.EMAIL, Lane.BULK, "email_bulk"),
        (Channel.SMS, Lane.SINGLE, "sms"),
        (Channel.SMS, Lane.BULK, "sms_bulk"),
    ],
)
def test_single_and_bulk_work_of_a_channel_have_their_own_queues(channel: Channel, lane: Lane, queue: str) -> None:
    assert queue_for(channel, lane) == queue


def test_a_broker_without_redis_says_so_instead_of_swallowing_the_message() -> None:
    broker = make_broker("redis://127.0.0.1:1/0", namespace="tidings", heartbeat_timeout_ms=20_000)
    with pytest.raises(redis.RedisError):
        Jobs(broker).ingest(uuid4())


def test_the_brokers_keys_live_in_a_namespace_of_their_own() -> None:
    broker = make_broker("redis://127.0.0.1:1/0", namespace="one", heartbeat_timeout_ms=20_000)
    assert broker.namespace == "one:broker"


@pytest.mark.parametrize("fault", [redis.TimeoutError("slow"), redis.ResponseError("OOM")])
def test_a_consumer_treats_a_time_out_and_a_refused_command_as_a_lost_connection(fault: Exception) -> None:
    def ask() -> None:
        raise fault

    with pytest.raises(ConnectionClosed):
        _Consumer._guarded(ask)
