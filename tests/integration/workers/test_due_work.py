"""Due work: what the ledger knows is found there, whatever became of the messages."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from uuid import uuid4

import pytest
import redis

from shared.domain.states import Channel, Lane, SendStatus
from shared.jobs import JobName, QueueName
from shared.ledger import cancelling, chains, recovery
from shared.ledger.chains import ChainKey
from shared.ledger.db import Ledger
from shared.recovery.passes import only_pass
from tests.integration.workers.ches import calls
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import break_rows, put_rows, put_send, scalar
from tests.support.scripted_http import ScriptedHttp
from tests.support.waiting import wait_until

SENDING = SendStatus.SENDING
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def age_chains(ledger: Ledger) -> None:
    """Past the time in which a message may be on its way between commit and queue."""
    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET queued_at = now() - interval '6 seconds'")


def test_a_message_delivered_twice_sends_nothing_twice(ledger: Ledger, ches: InProcess, provider: ScriptedHttp) -> None:
    send = make_send(ledger, count=5, status=SENDING)
    ches.start(send)
    [message] = ches.messages(QueueName.EMAIL_BULK)
    for _ in range(3):
        ches.broker.get_actor(message.actor_name).fn(**message.kwargs)
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 5}
    assert set(calls(provider).values()) == {1}


def test_a_message_is_dropped_while_a_living_process_works_on_its_chain(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=5, status=SENDING)
    ches.start(send)
    [message] = ches.messages(QueueName.EMAIL_BULK)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET holder = %s, started_at = now()", [make_worker().runtime.lease.worker])
    ches.broker.get_actor(message.actor_name).fn(**message.kwargs)
    assert calls(provider) == {}
    assert scalar(ledger, "SELECT count(*) FROM chain") == 1


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        (JobName.INGEST, {"send_id": str(uuid4())}),
        (
            JobName.WORK_CHAIN,
            {"send_id": str(uuid4()), "channel": "email", "chain_no": 0, "token": str(uuid4())},
        ),
        (JobName.DUE_WORK, {"slot": 1}),
        (JobName.HOUSEKEEPING, {"slot": 1}),
    ],
)
def test_messages_about_nothing_or_of_another_version_do_nothing(
    worker: InProcess, job: JobName, arguments: dict[str, object]
) -> None:
    worker.call(job, **arguments)
    worker.call(job, **arguments, v=2)


def test_a_message_of_another_version_leaves_the_work_to_the_ledger(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    worker.start(send)
    [message] = worker.messages(QueueName.EMAIL_BULK)
    worker.broker.get_actor(message.actor_name).fn(**{**message.kwargs, "v": 2})
    assert counts(ledger, send.id) == {"owed": 2}
    age_chains(ledger)
    flush(worker)
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 2}


def flush(worker: InProcess) -> None:
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        client.flushall()


def test_a_chain_whose_message_is_lost_is_started_again(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=60)
    worker.jobs.ingest(send.id)
    worker.work_off(QueueName.INGEST)
    flush(worker)
    worker.tick()
    assert worker.messages(QueueName.EMAIL_BULK) == []  # it may only be on its way
    age_chains(ledger)
    worker.tick()
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 3
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 60}


def test_a_chain_that_cannot_be_written_down_keeps_no_other_from_starting(ledger: Ledger, worker: InProcess) -> None:
    broken, whole = (make_send(ledger, count=2, status=SENDING) for _ in range(2))
    with ledger.autocommit() as connection:  # as if a row broke a rule of the ledger
        connection.execute(f"ALTER TABLE chain ADD CHECK (send_id <> '{broken.id}')")
    worker.tick()
    assert scalar(ledger, "SELECT array_agg(send_id) FROM chain") == [whole.id]
    worker.work_off()
    assert [counts(ledger, send.id) for send in (broken, whole)] == [{"owed": 2}, {"sent": 2}]


def test_a_chain_whose_message_the_transport_set_aside_is_started_again(ledger: Ledger, worker: InProcess) -> None:
    # As an older release does with an actor or an argument it does not know.
    send = make_send(ledger, count=2, status=SENDING)
    worker.start(send)
    consumer = worker.broker.consume(QueueName.EMAIL_BULK)
    consumer.nack(next(consumer))
    consumer.close()
    age_chains(ledger)
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 2}


def test_recovery_of_a_huge_backlog_is_bounded_and_holds_up_no_new_send(ledger: Ledger, worker: InProcess) -> None:
    huge = make_send(ledger, count=50_000, status=SENDING)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET holder = %s, chain_no = 0, leased_at = now(), due_at = now()", [uuid4()])
    urgent = make_send(ledger, lane=Lane.SINGLE, status=SENDING, tenant="globex")
    worker.tick()
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NOT NULL") == 1_000
    worker.work_off(QueueName.EMAIL)
    assert counts(ledger, urgent.id) == {"sent": 1}
    assert counts(ledger, huge.id) == {"owed": 50_000}


def test_a_chain_whose_message_waits_is_left_alone_however_long(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    worker.start(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET queued_at = now() - interval '2 days'")
    token = scalar(ledger, "SELECT token FROM chain")
    worker.tick()
    worker.tick()
    assert scalar(ledger, "SELECT token FROM chain") == token
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 1
    worker.work_off()


def test_the_chain_of_a_dead_process_is_started_again_and_its_calls_in_flight_are_unsure(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=5, status=SENDING)
    dead = uuid4()
    put_rows(ledger, send.id, [1], "sending")
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO worker (id, name, lease_until) VALUES (%s, 'dead', now() - interval '1 second')", [dead]
        )
        connection.execute("UPDATE batch SET holder = %s, chain_no = 0, leased_at = now()", [dead])
        connection.execute(
            "INSERT INTO chain (send_id, channel, chain_no, token, holder, started_at)"
            " VALUES (%s, 'email', 0, gen_random_uuid(), %s, now())",
            [send.id, dead],
        )
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"unsure": 1, "sent": 4}
    assert send_status(ledger, send.id) == "completed"
    with ledger.autocommit() as connection:
        (seen,) = recovery.passes(connection, limit=9)
    assert seen.by_tick
    assert seen.counts == {"batch": {"found": 2, "retried": 1, "requeued": 1, "given_up": 0}}


def test_a_tick_that_recovers_nothing_is_not_among_the_passes(ledger: Ledger, worker: InProcess) -> None:
    make_send(ledger, count=2, status=SENDING)
    worker.tick()
    worker.work_off()
    worker.tick()
    assert scalar(ledger, "SELECT count(*) FROM recovery_pass") == 0


def test_work_of_the_single_lane_recovered_by_a_tick_counts_as_deliveries(ledger: Ledger, worker: InProcess) -> None:
    make_send(ledger, lane=Lane.SINGLE, status=SENDING)
    worker.tick()
    flush(worker)
    age_chains(ledger)
    worker.tick()
    with ledger.autocommit() as connection:
        (seen,) = recovery.passes(connection, limit=9)
    assert seen.counts == {"delivery": {"found": 1, "retried": 0, "requeued": 1, "given_up": 0}}
    worker.work_off()


def test_a_tick_that_recovers_something_does_not_stop_the_pass_beside_it(ledger: Ledger, worker: InProcess) -> None:
    with only_pass(ledger, worker.runtime.link, worker.settings, worker="test") as running:
        assert running is not None
        with ledger.autocommit() as connection:
            recovery.note_tick(connection, worker="another", took_s=0.1, counts={"batch": {"found": 1}})
        running.check()
        assert running.left is None


def test_a_send_for_tomorrow_is_scheduled_and_left_untouched(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2, send_at="26 hours", age="1 hour")
    worker.jobs.ingest(send.id)
    worker.work_off(QueueName.INGEST)
    before = scalar(ledger, "SELECT send::text FROM send")
    for _ in range(3):
        worker.tick()
    assert worker.work_off() == 0
    assert scalar(ledger, "SELECT send::text FROM send") == before
    assert send_status(ledger, send.id) == "scheduled"
    assert counts(ledger, send.id) == {"owed": 2}


def test_a_scheduled_send_whose_time_has_come_starts_and_is_sent_once(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=3, send_at="-1 second", status=SendStatus.SCHEDULED)
    for _ in range(3):
        ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 3}
    assert set(calls(provider).values()) == {1}


def test_ticks_that_run_at_the_same_time_or_again_start_each_chain_once(
    ledger: Ledger, worker: InProcess, make_worker: MakeWorker
) -> None:
    for _ in range(5):
        make_send(ledger, count=100, status=SENDING)
    workers = [worker, make_worker(), make_worker()]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda each: each.tick(), workers))
    worker.tick()
    queued = worker.messages(QueueName.EMAIL_BULK)
    current = scalar(ledger, "SELECT array_agg(token::text) FROM chain")
    assert len(queued) == len(current) == 20
    assert {message.kwargs["token"] for message in queued} == set(current)
    worker.work_off()


def test_a_cancel_that_nobody_undid_is_final_after_its_ten_seconds(ledger: Ledger, worker: InProcess) -> None:
    sends = [make_send(ledger, count=60, status=SENDING) for _ in range(2)]
    with ledger.transaction() as connection:
        for send in sends:
            assert cancelling.begin(connection, send.id, operator="kim", reason="wrong list")
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE send SET cancel_asked_at = cancel_asked_at - interval '11 seconds',"
            " paused_at = paused_at - interval '11 seconds' WHERE id = %s",
            [sends[0].id],
        )
    worker.tick()
    assert [counts(ledger, send.id) for send in sends] == [{"cancelled": 60}, {"owed": 60}]
    assert [send_status(ledger, send.id) for send in sends] == ["cancelled", "paused"]
    assert scalar(ledger, "SELECT operator || ' ' || action FROM audit") == "kim cancel send done"


def test_a_cancelled_send_is_swept_and_closed(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=60)
    put_send(ledger, send.id, SendStatus.CANCELLED)
    worker.tick()
    assert counts(ledger, send.id) == {"cancelled": 60}
    assert scalar(ledger, "SELECT settled_counts->'email'->'cancelled' FROM send") == 60


def test_a_dead_workers_batch_that_is_broken_keeps_no_other_from_being_freed(ledger: Ledger, worker: InProcess) -> None:
    broken, whole = (make_send(ledger, count=2, status=SENDING) for _ in range(2))
    with ledger.autocommit() as connection:
        for send in (broken, whole):
            put_rows(ledger, send.id, [1], "sending")
            connection.execute(
                "UPDATE batch SET holder = gen_random_uuid(), chain_no = 0, leased_at = now() WHERE send_id = %s",
                [send.id],
            )
    break_rows(ledger, broken.id)
    worker.tick()
    assert [counts(ledger, send.id) for send in (broken, whole)] == [
        {"owed": 1, "sending": 1},
        {"owed": 1, "unsure": 1},
    ]


def test_a_send_that_cannot_be_swept_keeps_no_other_from_its_turn(ledger: Ledger, worker: InProcess) -> None:
    broken, whole = (make_send(ledger, count=2) for _ in range(2))
    for send in (broken, whole):
        put_send(ledger, send.id, SendStatus.CANCELLED)
    break_rows(ledger, broken.id)
    worker.tick()
    assert [counts(ledger, send.id) for send in (broken, whole)] == [{"owed": 2}, {"cancelled": 2}]


@pytest.mark.parametrize("status", [SendStatus.PENDING, SendStatus.QUEUED, SendStatus.SCHEDULED, SendStatus.PAUSED])
def test_a_send_past_its_valid_until_expires_wherever_it_waits(
    ledger: Ledger, worker: InProcess, status: SendStatus
) -> None:
    send = make_send(ledger, count=3, valid_until="-1 second")
    put_send(ledger, send.id, status)
    worker.tick()
    worker.tick()
    assert counts(ledger, send.id) == {"expired": 3}
    assert send_status(ledger, send.id) == "completed"


def test_a_send_whose_recipients_were_all_bad_is_completed(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2)
    put_rows(ledger, send.id, [1, 2], "failed")
    worker.jobs.ingest(send.id)
    worker.work_off()
    worker.tick()
    assert send_status(ledger, send.id) == "completed"


def test_single_and_bulk_sends_of_both_channels_are_found_and_queued_where_they_belong(
    ledger: Ledger, worker: InProcess
) -> None:
    for channel in Channel:
        for lane in Lane:
            make_send(ledger, channel=channel, lane=lane, status=SENDING)
    worker.tick()
    for queue in (QueueName.EMAIL, QueueName.EMAIL_BULK, QueueName.SMS, QueueName.SMS_BULK):
        assert len(worker.messages(queue)) == 1, queue
    worker.work_off()


def test_more_sends_than_a_page_are_all_started(ledger: Ledger, worker: InProcess) -> None:
    made = [make_send(ledger, lane=Lane.SINGLE, status=SENDING) for _ in range(520)]
    worker.tick()
    assert len(worker.messages(QueueName.EMAIL)) == len(made)
    worker.work_off(most=1_000)
    assert scalar(ledger, "SELECT count(*) FROM send WHERE status = 'completed'") == len(made)


def test_a_tick_that_is_long_at_starting_chains_leaves_the_other_threads_to_other_work(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, status=SENDING)
    late = make_send(ledger, send_at="-1 second", status=SendStatus.SCHEDULED)
    first = Thread(target=worker.tick)
    with ledger.transaction() as connection:
        key = ChainKey(send.id, send.channel, 0)
        assert chains.put(connection, key, token=uuid4(), old_token=None)  # the first tick waits for this one's end
        first.start()
        wait_until(lambda: scalar(ledger, _WAITING))
        with ledger.autocommit() as beside:
            beside.execute("UPDATE send SET status = 'scheduled', started_at = NULL WHERE id = %s", [late.id])
        worker.tick()
        assert send_status(ledger, late.id) == "sending"
        assert scalar(ledger, _WAITING) == 1
    first.join()
    assert scalar(ledger, "SELECT count(*) FROM chain WHERE send_id = %s", send.id) == 1


def test_without_redis_the_steps_that_need_none_are_done_all_the_same(ledger: Ledger, database_url: str) -> None:
    cancelled = make_send(ledger, count=2)
    put_send(ledger, cancelled.id, SendStatus.CANCELLED)
    due = make_send(ledger, send_at="-1 second", status=SendStatus.SCHEDULED)
    with InProcess(make_settings(database_url, "redis://127.0.0.1:1/0")) as worker:
        worker.tick()
    assert counts(ledger, cancelled.id) == {"cancelled": 2}
    assert send_status(ledger, due.id) == "sending"


def test_housekeeping_keeps_the_newest_messages_of_the_sandbox_within_count_and_age(
    ledger: Ledger, make_worker: MakeWorker
) -> None:
    worker = make_worker(sandbox_keep_messages=3, sandbox_keep_hours=1)
    worker.run(make_send(ledger, count=6, status=SENDING))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE sandbox_message SET received_at = now() - interval '2 hours' WHERE id = 6")
    worker.call(JobName.HOUSEKEEPING, slot=1)
    assert scalar(ledger, "SELECT array_agg(id ORDER BY id) FROM sandbox_message") == [4, 5]


def test_housekeeping_forgets_chains_whose_message_was_lost_once_their_send_is_over(
    ledger: Ledger, worker: InProcess
) -> None:
    over, going = make_send(ledger), make_send(ledger, status=SENDING)
    put_rows(ledger, over.id, [1], "sent")
    put_send(ledger, over.id, SendStatus.COMPLETED)
    with ledger.autocommit() as connection:
        for send in (over, going):
            for chain_no, age in enumerate(("2 hours", "50 minutes")):
                connection.execute(
                    "INSERT INTO chain (send_id, channel, chain_no, token, queued_at)"
                    " VALUES (%s, 'email', %s, gen_random_uuid(), now() - %s::interval)",
                    [send.id, chain_no, age],
                )
    worker.call(JobName.HOUSEKEEPING, slot=1)
    assert scalar(ledger, "SELECT count(*) FROM chain WHERE send_id = %s", over.id) == 1
    assert scalar(ledger, "SELECT count(*) FROM chain WHERE send_id = %s", going.id) == 2


def test_a_send_whose_ingest_message_is_lost_begins_half_a_minute_after_its_acceptance(
    ledger: Ledger, worker: InProcess
) -> None:
    fresh = make_send(ledger, age="20 seconds")
    waiting = make_send(ledger, age="31 seconds")
    worker.tick()
    worker.tick()
    assert [message.kwargs["send_id"] for message in worker.messages(QueueName.INGEST)] == [str(waiting.id)]
    with ledger.autocommit() as connection:
        (tick,) = recovery.passes(connection, limit=5)
    assert {name: n for name, n in tick.counts["pending"].items() if n} == {"found": 1, "requeued": 1}
    worker.work_off()
    assert counts(ledger, waiting.id) == {"sent": 1}
    assert send_status(ledger, fresh.id) == "pending"
