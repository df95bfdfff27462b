"""A person's requeue from its plan to the provider: undo, stop, crash, a few first, and what the provider counts."""

import logging
from signal import SIGKILL
from uuid import UUID

import pytest

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import FailureFilter, OperationKind
from shared.domain.states import Channel, DeliveryStatus, Lane, SendStatus
from shared.jobs import JobName, QueueName
from shared.ledger import operation_results, operations, requeue
from shared.ledger.db import Ledger
from tests.integration.workers.ches import calls, refused, serve, tags
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import make_channel
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import put_rows, put_send, scalar
from tests.support.processes import ProcessStarter, RunningProcess
from tests.support.requeuing import of, operation, plan
from tests.support.scripted_http import ScriptedHttp
from tests.support.waiting import wait_until
from workers.actors.operate import CHUNK, Operate


def dead(ledger: Ledger, count: int, *, signature: str | None = None) -> MadeSend:
    """A completed send that nobody got: each delivery died of the same cause."""
    send = make_send(ledger, count=count, status=SendStatus.SENDING)
    put_rows(ledger, send.id, range(1, count + 1), "dead_lettered", attempts=1)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET first_attempt_at = now()")
        connection.execute("UPDATE attempt SET became = 'dead_lettered', signature = %s", [signature])
    put_send(ledger, send.id, SendStatus.COMPLETED)
    return send


def work(worker: InProcess, times: int = 1_000) -> int:
    """Work on operations until none is due; how many chunks."""
    operate = Operate(worker.runtime)
    done = 0
    while done < times and operate.work_once():
        done += 1
    return done


def work_until(ledger: Ledger, worker: InProcess, id_: UUID, *, done: int) -> None:
    """Work until so many have gone; the first ones are looked at once a second."""
    wait_until(lambda: work(worker) and operation(ledger, id_).done == done, what=f"{done} to be requeued")


def test_the_result_of_a_large_operation_is_counted_when_it_ends_and_when_it_is_time(
    ledger: Ledger, ches: InProcess
) -> None:
    send = dead(ledger, 3)
    made = plan(ledger, of(send))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET total = 6000, done = 5997")
        Operate(ches.runtime).run()
        assert operation(ledger, made.id).status == "done"
        assert operation_results.counted(connection, made.id).counts == {"owed": 3}
        ches.tick()
        assert ches.messages(QueueName.OPS) == []
        connection.execute("UPDATE operation SET result = NULL")
        ches.tick()
    assert [message.actor_name for message in ches.messages(QueueName.OPS)] == [JobName.OPERATE]


def test_a_result_that_cannot_be_counted_in_time_is_tried_again_later(ledger: Ledger, ches: InProcess) -> None:
    send = dead(ledger, 3)
    made = plan(ledger, of(send))
    assert work(ches) == 1
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET total = 6000, done = 6000")
    with ledger.transaction() as other:
        other.execute("LOCK TABLE operation_item IN ACCESS EXCLUSIVE MODE")
        Operate(ches.runtime).count_results(patience_s=0.05)
    with ledger.autocommit() as connection:
        assert operation_results.counted(connection, made.id).counts == {}
        assert operation_results.to_count(connection, limit=1) == []


def test_what_is_requeued_is_sent_once_under_a_new_key(ledger: Ledger, ches: InProcess, provider: ScriptedHttp) -> None:
    send = dead(ledger, 30)
    made = plan(ledger, of(send))
    ches.tick()
    assert [message.actor_name for message in ches.messages(QueueName.OPS)] == [JobName.OPERATE]
    ches.work_off(QueueName.OPS)
    assert operation(ledger, made.id).status == "done"
    assert ches.tick() is None
    ches.work_off()
    assert send_status(ledger, send.id) == "completed"
    assert set(calls(provider).values()) == set(tags(provider).values()) == {1}
    with ledger.autocommit() as connection:
        assert operation_results.outcome(connection, made.id).counts == {"sent": 30}
    assert scalar(ledger, "SELECT result FROM audit ORDER BY id DESC LIMIT 1") == "done: 30 requeued, 0 skipped"


def test_the_sandboxs_address_for_trying_it_out_is_refused_and_sent_once_requeued(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, addresses=["mended@example.com", "permanent@example.com"], status=SendStatus.SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"failed": 2}
    made = plan(ledger, FailureFilter(send_id=send.id, statuses=frozenset({DeliveryStatus.FAILED})))
    work(worker)
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 1, "failed": 1}
    with ledger.autocommit() as connection:
        assert operation_results.outcome(connection, made.id).counts == {"sent": 1, "failed": 1}


def test_a_discard_goes_in_chunks_too_without_a_few_first_and_sends_nothing(ledger: Ledger, worker: InProcess) -> None:
    send = dead(ledger, CHUNK + 50)
    made = plan(ledger, of(send), kind=OperationKind.DISCARD, canary=True)
    assert work(worker, times=1) == 1
    assert scalar(ledger, "SELECT count(*) FROM failure WHERE discarded_by = 'kim'") == CHUNK
    with ledger.autocommit() as connection:  # its worker dies; another goes on where it was
        connection.execute("UPDATE operation SET run_at = now()")
    work(worker)
    assert (operation(ledger, made.id).status, operation(ledger, made.id).done) == ("done", CHUNK + 50)
    assert scalar(ledger, "SELECT count(DISTINCT discarded_operation) FROM failure") == 1
    assert (send_status(ledger, send.id), counts(ledger, send.id)) == ("completed", {"dead_lettered": CHUNK + 50})
    assert scalar(ledger, "SELECT result FROM audit ORDER BY id DESC LIMIT 1") == "done: 250 discarded, 0 skipped"


def test_nothing_is_done_before_the_time_to_undo_is_over(ledger: Ledger, worker: InProcess) -> None:
    send = dead(ledger, 3)
    made = plan(ledger, of(send), undo_s=600)
    worker.tick()
    assert worker.messages(QueueName.OPS) == []
    assert work(worker) == 0
    with ledger.transaction() as connection:
        assert operations.undo(connection, made.id, operator="kim")
        assert not operations.undo(connection, made.id, operator="kim")
    assert (operation(ledger, made.id).status, counts(ledger, send.id)) == ("undone", {"dead_lettered": 3})
    assert plan(ledger, of(send)).total == 3


def test_an_operation_is_paced_over_all_workers_and_stops_between_two_chunks(ledger: Ledger, worker: InProcess) -> None:
    send = dead(ledger, CHUNK + 50)
    made = plan(ledger, of(send))
    assert work(worker, times=1) == 1
    begun = operation(ledger, made.id)
    assert (begun.status, begun.done, begun.left) == ("running", CHUNK, 50)
    assert scalar(ledger, "SELECT run_at - stage_at >= interval '0.1 seconds' FROM operation")
    with ledger.transaction() as connection:
        assert not operations.undo(connection, made.id, operator="kim")
        assert operations.stop(connection, made.id, operator="kim", why="enough")
        assert not operations.stop(connection, made.id, operator="kim", why="enough")
    worker.call(JobName.OPERATE, slot=0)
    assert counts(ledger, send.id) == {"owed": CHUNK, "dead_lettered": 50}
    over = operation(ledger, made.id)
    assert (over.status, over.why, over.left) == ("stopped", "enough", 50)
    assert scalar(ledger, "SELECT count FROM audit WHERE action = 'stop'") == 50


def test_the_rest_follows_when_the_first_ones_are_sent(ledger: Ledger, ches: InProcess) -> None:
    send = dead(ledger, 40, signature="0123456789ab")
    made = plan(ledger, of(send), canary=True)
    for gone in (1, 11, 40):
        work_until(ledger, ches, made.id, done=gone)
        ches.tick()
        ches.work_off()
    assert operation(ledger, made.id).status == "done"
    assert counts(ledger, send.id) == {"sent": 40}


def test_it_stops_when_the_first_ones_fail_again_for_the_same_cause(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=40, status=SendStatus.SENDING)
    serve(provider, otherwise=refused(400, "no such domain"))
    ches.settings.__dict__["poison_guard_count"] = 0
    ches.run(send)
    assert counts(ledger, send.id) == {"failed": 40}
    serve(provider, {"person0": refused(400, "quite another thing")}, otherwise=refused(400, "no such domain"))
    made = plan(ledger, of(send), canary=True)
    for gone in (1, 11):
        work_until(ledger, ches, made.id, done=gone)
        ches.tick()
        ches.work_off()
    wait_until(lambda: work(ches) and operation(ledger, made.id).status == "stopped", what="the stop")
    over = operation(ledger, made.id)
    assert (over.done, over.left) == (11, 29)
    assert over.why == "of the first 11 tried again 10 failed for the same cause as before, 1 for good for another"


def test_single_sends_go_back_more_slowly_than_the_rows_of_one(ledger: Ledger, worker: InProcess) -> None:
    for _ in range(20):
        send = make_send(ledger, status=SendStatus.SENDING, lane=Lane.SINGLE, channel=Channel.SMS)
        put_rows(ledger, send.id, [1], "failed")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET first_attempt_at = now()")
    plan(ledger, FailureFilter())
    assert work(worker, times=1) == 1
    assert scalar(ledger, "SELECT run_at - stage_at >= interval '0.1 seconds' FROM operation")


def test_a_worker_killed_in_the_middle_of_a_chunk_leaves_it_to_the_next_one(
    ledger: Ledger, process: ProcessStarter
) -> None:
    send = dead(ledger, 60)
    made = plan(ledger, of(send))
    with ledger.transaction() as connection:
        connection.execute("SELECT 1 FROM batch WHERE send_id = %s AND batch_no = 1 FOR UPDATE", [send.id])
        first = ops_worker(process)
        clock = process(["python", "-m", "workers.clock"], ready="clock_started")
        wait_until(lambda: waits_for_a_lock(ledger), timeout=30, what="the worker to be in the middle of a chunk")
        first.signal_group(SIGKILL)
    wait_until(lambda: not waits_for_a_lock(ledger), what="its connection to end")
    assert (counts(ledger, send.id), operation(ledger, made.id).done) == ({"dead_lettered": 60}, 0)
    ops_worker(process)
    wait_until(lambda: operation(ledger, made.id).status == "done", timeout=30, what="the operation to be done")
    assert scalar(ledger, "SELECT count(*) FROM delivery WHERE status = 'owed' AND epoch = 1") == 60
    assert operation(ledger, made.id).done == 60
    assert clock.is_running()


def ops_worker(process: ProcessStarter) -> RunningProcess:
    return process(
        ["dramatiq", "workers.main", "--queues", "ops", "--processes", "1", "--threads", "2"],
        env={"DUE_WORK_INTERVAL_MS": "500"},
        ready="ready for action",
    )


def waits_for_a_lock(ledger: Ledger) -> bool:
    return bool(
        scalar(
            ledger,
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            " AND query LIKE '%%FOR NO KEY UPDATE OF b'",
        )
    )


def test_dead_letters_of_digests_are_requeued_in_chunks_beside_deliveries(
    ledger: Ledger, ches: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make_dead_letters(ledger, CHUNK + 1)
    send = dead(ledger, 3)
    letters = requeue_dead_letters(ledger)
    deliveries = plan(ledger, of(send))
    assert (letters.total, letters.canary) == (CHUNK + 1, False)
    ches.tick()
    ches.work_off(QueueName.OPS)
    wait_until(lambda: work(ches) == 0 and operation(ledger, letters.id).status == "done", what="its end")
    assert (operation(ledger, letters.id).done, operation(ledger, deliveries.id).done) == (CHUNK + 1, 3)
    said = {
        line["operation"]: line for line in (one.__dict__ for one in caplog.records if one.message == "operation_done")
    }
    assert (said[str(letters.id)]["event_id"], said[str(letters.id)]["done"]) == (3609, CHUNK + 1)
    assert "event_id" not in said[str(deliveries.id)]
    found = "SELECT count(*) FROM notification WHERE status = 'pending' AND attempt_count = 0 AND last_error = 'gone'"
    assert scalar(ledger, found) == CHUNK + 1


def test_a_requeue_of_dead_letters_that_is_stopped_midway_leaves_the_rest(ledger: Ledger, worker: InProcess) -> None:
    make_dead_letters(ledger, CHUNK + 50)
    made = requeue_dead_letters(ledger)
    assert work(worker, times=1) == 1
    with ledger.transaction() as connection:
        assert operations.stop(connection, made.id, operator="kim", why="the endpoint is away again")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET run_at = now()")
    assert work(worker) == 0
    over = operation(ledger, made.id)
    assert (over.status, over.done, over.left) == ("stopped", CHUNK, 50)
    told_again = "SELECT count(*) FROM notification WHERE status = 'pending' AND attempt_count = 0"
    as_it_was = "SELECT count(*) FROM notification WHERE status = 'dead_lettered' AND attempt_count = 5"
    assert (scalar(ledger, told_again), scalar(ledger, as_it_was)) == (CHUNK, 50)
    assert scalar(ledger, "SELECT count FROM audit WHERE action = 'stop'") == 50
    assert requeue_dead_letters(ledger).total == 50
    work(worker)
    assert scalar(ledger, told_again) == CHUNK + 50


def make_dead_letters(ledger: Ledger, count: int) -> None:
    """So many notifications of one channel that nobody could be told of."""
    channel = make_channel(ledger, "https://example.com/hook")
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status, final_at,"
            " attempt_count, last_error)"
            " SELECT %s, n, 'x', 's', 'low', now(), 'dead_lettered', now(), 5, 'gone' FROM generate_series(1, %s) n",
            [channel, count],
        )


def requeue_dead_letters(ledger: Ledger) -> operations.Operation:
    with ledger.transaction() as connection:
        now = requeue.ledger_now(connection)
        asked = DeadLetterFilter(channel="ops")
        made, _ = operations.plan(
            connection, OperationKind.REQUEUE, asked, operator="kim", reason=None, as_of=now, undo_s=0
        )
    assert made is not None
    return made
