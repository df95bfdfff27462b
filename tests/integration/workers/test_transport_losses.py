"""Messages that no worker can end: what they were to do is found in the ledger."""

import time
from typing import Any

import dramatiq
import psycopg
import pytest
import redis
from dramatiq.broker import MessageProxy
from dramatiq.worker import Worker

from shared.coordination.message_starts import MessageStarts
from shared.coordination.queue_depth import Queues
from shared.domain.states import SendStatus
from shared.jobs import QueueName
from shared.ledger import failed_jobs
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend, counts, make_send
from tests.support.ledger_rows import scalar
from tests.support.waiting import wait_until
from workers.middleware.failed_jobs import FailedJobs

SENDING = SendStatus.SENDING


def waiting(worker: InProcess) -> "dramatiq.Message[Any]":
    [message] = worker.messages(QueueName.EMAIL_BULK)
    return message


def starts(worker: InProcess) -> MessageStarts:
    return MessageStarts(worker.runtime.link, namespace=worker.settings.redis_namespace)


def depth(worker: InProcess) -> tuple[int, int, int]:
    [queue] = Queues(worker.runtime.link, namespace=worker.broker.namespace).depths(["email_bulk"])
    return queue.ready, queue.unacked, queue.dead


def consume(worker: InProcess) -> None:
    """Let dramatiq's own threads work the bulk queue off."""
    threads = Worker(worker.broker, queues={"email_bulk"}, worker_threads=1, worker_timeout=50)
    for consumer_or_worker in ("consumers", "workers"):
        assert not getattr(threads, consumer_or_worker)
    for queue in sorted(worker.broker.queues):
        threads._add_consumer(queue)
    threads._add_worker()
    try:
        wait_until(lambda: depth(worker)[:2] == (0, 0), what="an empty queue")
    finally:
        for thread in (*threads.workers, *threads.consumers.values()):
            thread.stop()
        for thread in (*threads.workers, *threads.consumers.values()):
            thread.join(5)


def age_chains(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET queued_at = now() - interval '6 seconds'")


def failed(ledger: Ledger) -> list[tuple[object, ...]]:
    """What the Failures page shows of jobs."""
    with ledger.autocommit() as connection:
        found = failed_jobs.newest(connection, limit=5)
    return [(job.queue, job.job, job.kind, job.send_id, job.tenant, job.starts) for job in found]


@pytest.mark.parametrize("most", [3, 1])
def test_a_message_that_came_back_too_often_is_set_aside_and_its_send_is_finished_all_the_same(
    ledger: Ledger, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setenv("QUEUE_MAX_STALLED_COUNT", str(most))
    worker = make_worker()
    send = make_send(ledger, count=3, status=SENDING)
    worker.start(send)
    for _ in range(most + 1):  # so many workers died in it
        starts(worker).begin(waiting(worker).options["redis_message_id"])
    consume(worker)
    assert counts(ledger, send.id) == {"owed": 3}
    assert depth(worker) == (0, 0, 0)
    assert failed(ledger) == [("email_bulk", "work_chain", "set_aside", send.id, "acme", most + 1)]
    finish(ledger, worker, send)


def test_a_message_that_came_back_twice_is_run_and_its_count_is_forgotten(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    worker.start(send)
    id_ = waiting(worker).options["redis_message_id"]
    for _ in range(3):
        starts(worker).begin(id_)
    consume(worker)
    assert counts(ledger, send.id) == {"sent": 3}
    assert starts(worker).begin(id_) == 1


@pytest.mark.parametrize("fault", ["unknown actor", "unknown argument"])
def test_a_message_nobody_understands_is_kept_for_a_day_and_its_send_is_finished_all_the_same(
    ledger: Ledger, worker: InProcess, fault: str
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    worker.start(send)
    message = waiting(worker)
    changed = (
        message.copy(actor_name="of_a_newer_version")
        if fault == "unknown actor"
        else message.copy(kwargs={**message.kwargs, "of_a_newer_version": 1})
    )
    key = f"{worker.broker.namespace}:email_bulk"
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        client.hset(f"{key}.msgs", message.options["redis_message_id"], changed.encode())
        consume(worker)
        assert counts(ledger, send.id) == {"owed": 3}
        assert depth(worker) == (0, 0, 1)
        kind = "set_aside" if fault == "unknown actor" else "raised"
        assert failed(ledger) == [("email_bulk", changed.actor_name, kind, send.id, "acme", None)]
        finish(ledger, worker, send)
        client.zadd(f"{key}.XQ", {message.options["redis_message_id"]: int((time.time() - 86_401) * 1000)})
        worker.broker.do_enqueue("email_bulk", "next", b"{}")
        client.delete(key, f"{key}.msgs")
    assert depth(worker) == (0, 0, 0)


def test_what_a_dead_consumer_had_fetched_comes_back_and_is_not_made_anew_meanwhile(
    ledger: Ledger, worker: InProcess, make_worker: MakeWorker
) -> None:
    dead = make_worker()
    send = make_send(ledger, count=3, age="1 minute")
    worker.reconcile()
    assert next(dead.broker.consume("ingest", prefetch=1, timeout=1)) is not None
    worker.reconcile()
    assert depth_of(worker, "ingest") == (0, 1)
    silent = int((time.time() - dead.settings.worker_heartbeat_timeout_ms / 1000 - 1) * 1000)
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        client.zadd(f"{worker.broker.namespace}:__heartbeats__", {dead.broker.broker_id: silent})
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 3}


@pytest.mark.parametrize("lost", ["ingest", "__acks__"])
def test_a_message_that_redis_kept_and_nobody_would_fetch_is_put_back_by_a_pass(
    ledger: Ledger, worker: InProcess, lost: str
) -> None:
    # Under an eviction policy Redis drops keys one by one: the list, or the set of what a process fetched.
    send = make_send(ledger, count=3, age="1 minute")
    worker.reconcile()
    name = f"{worker.broker.namespace}:{lost}"
    if lost == "__acks__":
        assert next(worker.broker.consume("ingest", prefetch=1, timeout=1)) is not None
        name += f".{worker.broker.broker_id}.ingest"
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        assert client.delete(name) == 1
    worker.reconcile()
    assert depth_of(worker, "ingest") == (1, 0)
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 3}
    worker.reconcile()
    assert depth_of(worker, "ingest") == (0, 0)


def depth_of(worker: InProcess, name: str) -> tuple[int, int]:
    [queue] = Queues(worker.runtime.link, namespace=worker.broker.namespace).depths([name])
    return queue.ready, queue.unacked


def finish(ledger: Ledger, worker: InProcess, send: MadeSend) -> None:
    age_chains(ledger)
    worker.tick()
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 1
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": send.count}
    assert scalar(ledger, "SELECT count(*) FROM chain") == 0


def test_what_is_kept_of_a_failed_job_tells_no_row(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, status=SENDING)
    worker.start(send)
    with ledger.autocommit() as connection, pytest.raises(psycopg.errors.CheckViolation) as broken:
        connection.execute("""UPDATE delivery SET params = '{"name": "Ada Lovelace"}', status = 'told'""")
    assert "Ada Lovelace" in str(broken.value)
    FailedJobs(worker.runtime).after_process_message(
        worker.broker, MessageProxy(waiting(worker)), exception=broken.value
    )
    with ledger.autocommit() as connection:
        [job] = failed_jobs.newest(connection, limit=5)
    assert "delivery" in job.error
    assert "Ada" not in job.error
