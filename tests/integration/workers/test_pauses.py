"""A queue that an operator paused: consumed by nobody, lost by nobody, and never stuck."""

import redis

from shared.coordination.queue_depth import Queues
from shared.domain.states import Lane, SendStatus
from shared.jobs import JobName, QueueName
from shared.ledger import pauses
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import scalar
from tests.support.processes import ProcessStarter
from tests.support.waiting import wait_until


def pause(ledger: Ledger, queue: str = "email_bulk") -> None:
    with ledger.transaction() as connection:
        assert pauses.pause(connection, queue, operator="kim", reason="the relay is being moved")


def resume(ledger: Ledger, queue: str = "email_bulk") -> None:
    with ledger.transaction() as connection:
        assert pauses.resume(connection, queue, operator="kim")


def test_a_pause_stays_the_first_operators_and_both_its_ends_are_audited(ledger: Ledger) -> None:
    pause(ledger)
    with ledger.transaction() as connection:
        assert not pauses.pause(connection, "email_bulk", operator="lee", reason="me too")
        assert pauses.paused(connection)["email_bulk"].operator == "kim"
    resume(ledger)
    with ledger.transaction() as connection:
        assert not pauses.resume(connection, "email_bulk", operator="lee")
        entries = connection.execute("SELECT operator, action, target, result FROM audit ORDER BY id").fetchall()
    assert entries == [
        ("kim", "pause queue", "queue email_bulk", "paused"),
        ("lee", "pause queue", "queue email_bulk", "was paused already"),
        ("kim", "resume queue", "queue email_bulk", "resumed"),
        ("lee", "resume queue", "queue email_bulk", "was not paused"),
    ]


def test_nothing_is_taken_from_a_paused_queue_and_all_of_it_afterwards(ledger: Ledger, make_worker: MakeWorker) -> None:
    pause(ledger)
    worker = make_worker()
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    single = make_send(ledger, count=1, lane=Lane.SINGLE, status=SendStatus.SENDING)
    worker.start(send)
    worker.start(single)

    assert worker.work_off() == 1
    assert counts(ledger, single.id) == {"sent": 1}
    assert counts(ledger, send.id) == {"owed": 30}
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 1

    resume(ledger)
    wait_until(lambda: not worker.broker.paused, what="the worker to hear of it")
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 30}


def test_a_chain_that_was_fetched_before_the_pause_sends_nothing_and_gives_back_all(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    worker.start(send)
    message = worker.messages(QueueName.EMAIL_BULK)[0]
    pause(ledger)
    wait_until(lambda: worker.broker.paused, what="the worker to hear of it")

    worker.broker.get_actor(message.actor_name).fn(**message.kwargs)

    assert counts(ledger, send.id) == {"owed": 30}
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NOT NULL") == 0
    assert scalar(ledger, "SELECT count(*) FROM chain") == 0
    assert send_status(ledger, send.id) == "sending"


def test_neither_due_work_nor_a_pass_starts_chains_on_a_paused_queue_or_counts_its_wait(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=30, status=SendStatus.SENDING, age="1 hour")
    pause(ledger)

    worker.tick()
    worker.reconcile()

    assert worker.messages(QueueName.EMAIL_BULK) == []
    assert scalar(ledger, "SELECT counts::text FROM recovery_pass ORDER BY id DESC LIMIT 1") == "{}"
    assert scalar(ledger, "SELECT max(recovery_count) FROM batch WHERE send_id = %s", send.id) == 0
    resume(ledger)
    worker.tick()
    assert worker.messages(QueueName.EMAIL_BULK) != []


def test_running_workers_stop_within_seconds_a_flush_does_not_end_it_and_nothing_is_lost(
    ledger: Ledger, redis_url: str, process: ProcessStarter
) -> None:
    environment = {"EMAIL_PROVIDER": "sandbox", "EMAIL_FROM": "a@example.com", "SANDBOX_LATENCY_MS": "100"}
    process(
        ["python", "-m", "workers", "--queues", "email_bulk", "ops", "--threads", "2"],
        env={**environment, "WINDOW_MAX": "2", "CHAINS_PER_SEND": "2"},
        ready="ready for action",
    )
    clock = process(["python", "-m", "workers.clock"], ready="clock_started")
    send = make_send(ledger, count=400, status=SendStatus.SENDING)
    wait_until(lambda: counts(ledger, send.id).get("sent", 0) > 10, what="the send to move", timeout=30)

    pause(ledger)
    wait_until(
        lambda: scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NOT NULL") == 0,
        what="everything given back",
        timeout=10,
    )
    sent = counts(ledger, send.id)["sent"]
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    ticked = scalar(ledger, "SELECT slot FROM periodic_slot WHERE name = %s", JobName.DUE_WORK.value)
    wait_until(
        lambda: (
            scalar(ledger, "SELECT slot FROM periodic_slot WHERE name = %s", JobName.DUE_WORK.value) > ticked + 4_000
        ),
        what="some ticks",
        timeout=30,
    )
    assert counts(ledger, send.id) == {"sent": sent, "owed": 400 - sent}

    resume(ledger)
    wait_until(lambda: counts(ledger, send.id).get("sent") == 400, what="the rest", timeout=60)
    assert clock.is_running()


def test_workers_tell_of_their_queues_and_messages(ledger: Ledger, worker: InProcess, redis_url: str) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    worker.run(send)
    worker.runtime.minutes.flush()

    (minute,) = worker.runtime.minutes.read(["email_bulk"], minutes=1)["email_bulk"]
    assert minute.added == 1
    assert Queues(worker.runtime.link).depths(["email_bulk"])[0].ready == 0
