"""Retention: what is old and final goes, what is not stays, and the books balance all the while."""

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.domain.states import Channel, DeliveryStatus, SendEventKind, SendStatus
from shared.jobs import JobName
from shared.ledger import (
    books,
    deliveries,
    operation_results,
    operations,
    requeue,
    retention,
    send_events,
    send_page,
)
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import LOOPBACK, age, event, finding, make_channel, post, put, statuses
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import put_rows, scalar
from tests.support.processes import ProcessStarter
from tests.support.requeuing import finish, of, operation, plan, preview
from tests.support.scripted_http import answer, scripted_http
from tests.support.waiting import wait_until
from workers.actors.digest import Dispatch
from workers.actors.retention import run_retention

DAY_S = 86_000.0


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK, retention_days=30, notification_retention_days=30)


def tell(worker: InProcess) -> None:
    Dispatch(worker.runtime, worker.jobs).run()


def clean(worker: InProcess) -> retention.RetentionRun:
    """A day's run from its beginning to its end."""
    run_retention(worker.runtime, every_s=0.0)
    with worker.runtime.ledger.autocommit() as connection:
        run = retention.newest(connection)
    assert run is not None
    assert run.ended_at is not None
    return run


def count(ledger: Ledger, table: str, send_id: UUID | None = None) -> int:
    where = "" if send_id is None else f" WHERE {'id' if table == 'send' else 'send_id'} = '{send_id}'"
    with ledger.autocommit() as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}{where}").fetchone()  # type: ignore[arg-type]
    assert row is not None
    return int(row[0])


def make_old(ledger: Ledger, send: MadeSend, interval: str = "31 days") -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE send SET completed_at = completed_at - %(by)s::interval,"
            " cancelled_at = cancelled_at - %(by)s::interval WHERE id = %(id)s",
            {"id": send.id, "by": interval},
        )


def test_old_final_notifications_go_and_what_is_in_flight_stays(
    ledger: Ledger, worker: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted_http() as server:
        server.always("/bad", answer(400))
        server.always("/ok", answer(200))
        put(ledger, "known")
        make_channel(ledger, server.url + "/ok", name="ok")
        make_channel(ledger, server.url + "/bad", name="dead", max_delivery_attempts=1)
        make_channel(ledger, server.url + "/bad", name="retrying")
        post(ledger, "a")
        tell(worker)
        age(ledger, "31 days")
        make_channel(ledger, server.url + "/ok", name="later", tells_existing=True)
        with ledger.transaction() as connection:
            connection.execute("UPDATE event SET received_at = now() - interval '31 days'")
            connection.execute("UPDATE finding SET active = false, inactive_at = now() - interval '31 days'")
        with caplog.at_level(logging.INFO):
            run = clean(worker)
    assert run.removed == {"notifications": 5, "events": 1, "findings": 1, "digests": 3}
    assert statuses(ledger, channel="ok") == statuses(ledger, channel="dead") == {}
    assert statuses(ledger, channel="retrying") == {"a": "retrying"}
    (line,) = [record.__dict__ for record in caplog.records if record.message == "retention_done"]
    assert (line["event_id"], line["removed_notifications"]) == (3611, 5)


def test_the_age_counts_from_the_end_and_a_channel_may_have_its_own(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always("/ok", answer(200))
        make_channel(ledger, server.url + "/ok", name="usual")
        make_channel(ledger, server.url + "/ok", name="week", retention_days=7)
        post(ledger, "a")
        tell(worker)
        age(ledger, "8 days")
        with ledger.transaction() as connection:
            connection.execute("UPDATE notification SET created_at = now() - interval '100 days'")
        clean(worker)
    assert statuses(ledger, channel="usual") == {"a": "sent"}
    assert statuses(ledger, channel="week") == {}


def test_what_an_active_finding_is_behind_is_kept_and_never_told_again(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always("/ok", answer(200))
        make_channel(ledger, server.url + "/ok")
        put(ledger, "lasting", "ending", "deleted")
        post(ledger, event("of the lasting", finding="lasting"))
        tell(worker)
        for _ in range(3):
            age(ledger, "400 days")
            put(ledger, finding("ending", active=False))
            with ledger.transaction() as connection:
                connection.execute("DELETE FROM finding WHERE key = 'deleted'")
                connection.execute("UPDATE digest_channel SET detected_at = NULL")  # as after a change of its filter
                connection.execute("DELETE FROM event")
            clean(worker)
            tell(worker)
        assert statuses(ledger) == {"lasting": "sent", "of the lasting": "sent"}
        assert len(server.posts("/ok")) == 1


def test_many_that_stay_hide_none_that_go(ledger: Ledger, worker: InProcess) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    put(ledger, "lasting")
    with ledger.transaction() as connection:
        for prefix, key, n in (("stays", "lasting", 5_000), ("goes", None, 5)):
            connection.execute(
                "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, finding_key, occurred_at,"
                " status, final_at) SELECT %(channel)s, %(prefix)s || n, 'x', 's', 'low', %(key)s, now(), 'suppressed',"
                " now() - interval '60 days' + n * interval '1 second' FROM generate_series(1, %(n)s) AS n",
                {"channel": channel, "prefix": prefix, "key": key, "n": n},
            )
        connection.execute(
            "UPDATE notification SET final_at = now() - interval '31 days' WHERE dedup_key LIKE 'goes%%'"
        )
    assert clean(worker).removed == {"notifications": 5}
    assert count(ledger, "notification") == 5_000


def test_of_an_old_send_the_totals_stay(ledger: Ledger, worker: InProcess) -> None:
    send, young = (
        make_send(ledger, count=60, status=SendStatus.SENDING),
        make_send(ledger, count=3, status=SendStatus.SENDING),
    )
    for one in (send, young):
        worker.run(one)
    worker.tick()
    with ledger.autocommit() as connection:
        for one in (send, young):
            send_events.note(connection, one.id, SendEventKind.MESSAGE_LOST)
    make_old(ledger, send)
    run = clean(worker)
    assert run.removed == {"sends": 1, "batches": 3, "deliveries": 60, "attempts": 60}
    for table in ("delivery", "attempt", "batch", "send_event"):
        assert count(ledger, table, send.id) == 0
        assert count(ledger, table, young.id) > 0
    with ledger.autocommit() as connection:
        (line,) = books.lines(connection, send_id=send.id)
        assert (line.books.accepted, line.books.sent) == (60, 60)
        assert books.sends_out_of_balance(connection, limit=10) == []
        assert books.deliveries_out_of_balance(connection, send.id, limit=10) == []
    assert clean(worker).removed == {}


def test_a_send_that_is_not_settled_or_has_something_unsure_stays_whole(ledger: Ledger, worker: InProcess) -> None:
    unsure, open_, paused = (make_send(ledger, count=30, status=SendStatus.SENDING) for _ in range(3))
    worker.run(unsure)
    worker.tick()
    with ledger.transaction() as connection:
        connection.execute("UPDATE delivery SET status = 'unsure' WHERE send_id = %s AND row_no = 3", [unsure.id])
        connection.execute(
            "UPDATE batch SET sent = sent - 1, unsure = 1 WHERE send_id = %s AND batch_no = 0", [unsure.id]
        )
        connection.execute("UPDATE send SET created_at = now() - interval '90 days', send_at = NULL")
        connection.execute(
            "UPDATE send SET status = 'paused', paused_at = now() - interval '60 days' WHERE id = %s", [paused.id]
        )
    make_old(ledger, unsure)
    assert clean(worker).removed == {}
    assert [count(ledger, "delivery", send.id) for send in (unsure, open_, paused)] == [30, 30, 30]
    with ledger.transaction() as connection:  # as it was, for whoever looks whether the books balance
        connection.execute("UPDATE delivery SET status = 'sent' WHERE send_id = %s", [unsure.id])
        connection.execute("UPDATE batch SET sent = sent + unsure, unsure = 0 WHERE send_id = %s", [unsure.id])


def test_a_run_that_was_broken_off_goes_on_where_it_was(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=60, status=SendStatus.SENDING)
    worker.run(send)
    worker.tick()
    make_old(ledger, send)
    with ledger.transaction() as connection:
        run = retention.take(connection, worker="dead", every_s=DAY_S, silent_s=120)
        assert run is not None
        retention.begin_forgetting(connection, send.id)
        removed = retention.remove_deliveries(connection, send.id, first=1, last=20)
        retention.note(connection, run, removed=removed, longest_ms=7)
    with ledger.autocommit() as connection:
        assert books.sends_out_of_balance(connection, limit=10) == []
    run_retention(worker.runtime)
    assert count(ledger, "delivery", send.id) == 40  # its worker may be alive
    with ledger.transaction() as connection:
        connection.execute("UPDATE retention_run SET progress_at = now() - interval '3 minutes'")
    run_retention(worker.runtime)
    with ledger.autocommit() as connection:
        done = retention.newest(connection)
    assert done is not None
    assert done.removed["deliveries"] == 60
    assert done.ended_at is not None
    run_retention(worker.runtime)
    assert count(ledger, "retention_run") == 1  # once a day


def test_a_run_that_is_killed_in_the_middle_is_gone_on_with_and_counts_what_it_did(
    ledger: Ledger, worker: InProcess, process: ProcessStarter
) -> None:
    old, rest = (make_send(ledger, count=count, status=SendStatus.SENDING, batch_size=500) for count in (6_000, 500))
    in_flight = make_send(ledger, count=300, status=SendStatus.SENDING)
    for send in (old, rest):
        put_rows(ledger, send.id, range(1, send.count + 1), "sent", attempts=1)
    put_rows(ledger, in_flight.id, range(1, 100), "sent", attempts=1)
    put_rows(ledger, in_flight.id, range(100, 200), "retrying", due_in="1 hour", attempts=1)
    worker.tick()
    with ledger.transaction() as connection:
        connection.execute("UPDATE send SET created_at = now() - interval '90 days'")
    make_old(ledger, old, "32 days")
    make_old(ledger, rest)
    channel = make_channel(ledger, "https://example.com/x")
    put(ledger, "lasting")
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, finding_key, occurred_at,"
            " status, final_at) SELECT %s, n, 'x', 's', 'low', CASE WHEN n <= 20 THEN 'lasting' END, now(),"
            " 'suppressed', now() - interval '60 days' FROM generate_series(1, 50) n",
            [channel],
        )
    with ledger.transaction() as connection:
        connection.execute("SELECT 1 FROM delivery WHERE send_id = %s AND row_no = 3000 FOR UPDATE", [old.id])
        victim = process(
            ["dramatiq", "workers.main", "--queues", "ops", "--processes", "1", "--threads", "2"],
            env={"RETENTION_DAYS": "30", "NOTIFICATION_RETENTION_DAYS": "30"},
            ready="ready for action",
        )
        worker.jobs.periodic(JobName.RETENTION, slot=0)
        wait_until(lambda: removes(ledger, waiting=True), timeout=30, what="it to be in the middle of a chunk")
        victim.kill()
    wait_until(lambda: not removes(ledger), timeout=30, what="its connection to end")
    left = count(ledger, "delivery", old.id)
    assert 0 < left < 6_000
    with ledger.autocommit() as connection:
        begun = retention.newest(connection)
        assert begun is not None
        assert (begun.ended_at, begun.removed["deliveries"]) == (None, 6_000 - left)
        assert books.sends_out_of_balance(connection, limit=10) == []
        connection.execute("UPDATE retention_run SET progress_at = now() - interval '3 minutes'")
    run_retention(worker.runtime)
    with ledger.autocommit() as connection:
        done = retention.newest(connection)
        assert books.sends_out_of_balance(connection, limit=10) == []
    assert done is not None
    assert done.ended_at is not None
    assert done.removed == {"sends": 2, "batches": 13, "deliveries": 6_500, "attempts": 6_500, "notifications": 30}
    assert (count(ledger, "delivery"), count(ledger, "attempt")) == (300, 199)
    assert scalar(ledger, "SELECT count(*) FROM notification WHERE finding_key = 'lasting'") == 20


def removes(ledger: Ledger, *, waiting: bool = False) -> bool:
    """Whether somebody is removing deliveries, or waits for a lock in it."""
    wait = " AND wait_event_type = 'Lock'" if waiting else ""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%%DELETE FROM delivery%%'"
    return bool(scalar(ledger, f"{asked} AND pid <> pg_backend_pid() AND datname = current_database(){wait}"))


def test_a_requeued_send_is_not_forgotten_under_the_persons_hands(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    worker.run(send)
    worker.tick()
    make_old(ledger, send)
    with ledger.autocommit() as connection:
        (found,) = retention.old_sends(connection, days=30, limit=10)
        connection.execute("UPDATE send SET status = 'sending', completed_at = NULL WHERE id = %s", [send.id])
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, found.id) is None
    assert count(ledger, "batch", send.id) == 2


def test_old_receipts_of_nobody_and_old_passes_go(ledger: Ledger, worker: InProcess) -> None:
    with ledger.transaction() as connection:
        insert: Any = (
            "INSERT INTO receipt (send_id, row_no, epoch, provider, status, received_at)"
            " SELECT gen_random_uuid(), 1, 0, 'twilio', 'delivered', now() - d * interval '1 day'"
            " FROM unnest(ARRAY[1, 40]) d"
        )
        connection.execute(insert)
        connection.execute(
            "INSERT INTO recovery_pass (worker, fence, started_at)"
            " SELECT 'w', 1, now() - d * interval '1 day' FROM unnest(ARRAY[1, 40]) d"
        )
    assert clean(worker).removed == {"receipts": 1, "recovery_passes": 1}


def test_what_retention_has_begun_to_remove_is_never_requeued(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    make_old(ledger, send)
    planned = plan(ledger, FailureFilter(ids=((send.id, 2),)))
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id) == 1
    finish(ledger)
    assert (operation(ledger, planned.id).done, operation(ledger, planned.id).skipped) == (0, 1)
    for asked, missing in ((of(send), 3), (FailureFilter(ids=((send.id, 1), (send.id, 9))), 2)):
        seen = preview(ledger, asked)
        assert (seen.total, seen.left_out) == (0, {LeftOut.MISSING: missing})
    assert clean(worker).removed == {"sends": 1, "deliveries": 3, "attempts": 3}
    with ledger.autocommit() as connection:
        (line,) = books.lines(connection, send_id=send.id)
    assert (line.books.accepted, line.books.failed) == (3, 3)


def test_deliveries_go_only_while_their_send_is_being_forgotten(ledger: Ledger) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        retention.remove_deliveries(connection, send.id, first=1, last=3)
    assert count(ledger, "delivery", send.id) == 3


def test_what_is_unsure_and_discarded_keeps_its_send_no_longer(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2, status=SendStatus.SENDING)
    claim = uuid4()
    put_rows(ledger, send.id, [1, 2], "unsure", claim=claim, attempts=1)
    worker.tick()
    make_old(ledger, send)
    for row in (1, 2):
        assert clean(worker).removed == {}
        with ledger.transaction() as connection:
            assert retention.begin_forgetting(connection, send.id) is None
        asked = FailureFilter(ids=((send.id, row),), statuses=frozenset({DeliveryStatus.UNSURE}))
        plan(ledger, asked, kind=OperationKind.DISCARD)
        finish(ledger)
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id) == 1
    now = datetime.now(UTC)
    with ledger.transaction() as connection:  # a proof that comes now finds no batch to count it
        late = deliveries.Result(1, 0, DeliveryStatus.SENT, True, None, None, "accepted", None, None, None, now, None)
        call = deliveries.Claim(send.id, Channel.EMAIL, claim, now, "sandbox")
        assert not deliveries.record_late(connection, call, late, late_claim=uuid4())
    assert clean(worker).removed == {"sends": 1, "deliveries": 2, "attempts": 2}
    with ledger.autocommit() as connection:
        (line,) = books.lines(connection, send_id=send.id)
        assert (line.books.accepted, line.books.unsure, line.books.discarded) == (2, 0, 2)
        assert books.sends_out_of_balance(connection, limit=10) == []


def test_what_was_discarded_stays_so_in_the_totals_at_every_step(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    make_old(ledger, send)
    plan(ledger, FailureFilter(ids=((send.id, 1), (send.id, 3))), kind=OperationKind.DISCARD)
    finish(ledger)

    def told() -> tuple[int, ...]:
        with ledger.autocommit() as connection:
            (line,) = books.lines(connection, send_id=send.id)
            shown = send_page.find(connection, send.id)
            assert shown is not None
            assert shown.books[Channel.EMAIL] == line.books
            assert books.sends_out_of_balance(connection, limit=10) == []
        return line.books.failed, line.books.discarded, line.books.unaccounted

    assert told() == (1, 2, 0)
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id) == 1
    assert told() == (1, 2, 0)
    with ledger.transaction() as connection:
        retention.remove_deliveries(connection, send.id, first=1, last=2)
    assert told() == (1, 2, 0)
    clean(worker)
    assert told() == (1, 2, 0)


def test_an_operation_keeps_its_result_and_not_its_items(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    made = plan(ledger, FailureFilter(ids=((send.id, 1), (send.id, 2))))
    put_rows(ledger, send.id, [2], "sent")
    finish(ledger)
    put_rows(ledger, send.id, [1], "sent")
    worker.tick()
    ended(ledger, "2 days")
    assert clean(worker).removed == {}
    assert count(ledger, "operation_item") == 2
    ended(ledger, "31 days")
    assert clean(worker).removed == {}  # a delivery that is kept shows the operation in its history
    make_old(ledger, send)
    assert clean(worker).removed == {"sends": 1, "batches": 1, "deliveries": 3, "attempts": 3, "operation_items": 2}
    assert count(ledger, "operation_item") == 0
    kept = operation(ledger, made.id)
    assert (kept.done, kept.skipped, kept.reason, kept.emptied_at is None) == (1, 1, "a test", False)
    with ledger.autocommit() as connection:
        came = operation_results.outcome(connection, made.id)
        assert (came.counts, came.noted_at is None) == ({"sent": 1}, False)
        assert operation_results.skips(connection, made.id) == {LeftOut.STATE: 1}
    assert clean(worker).removed == {}


def test_an_operation_that_cannot_be_worked_on_holds_nothing_else_up(
    ledger: Ledger, worker: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    stuck, free = (plan(ledger, FailureFilter(ids=((send.id, row),))) for row in (1, 2))
    finish(ledger)
    put_rows(ledger, send.id, [1, 2], "sent")
    worker.tick()
    ended(ledger, "31 days")
    make_old(ledger, send)
    with ledger.transaction() as other:
        other.execute("SELECT 1 FROM operation WHERE id = %s FOR UPDATE", [stuck.id])
        run_retention(worker.runtime, patience_s=2.0)
        with ledger.autocommit() as connection:
            run = retention.newest(connection)
    assert run is not None
    assert run.ended_at is not None
    assert run.removed == {"sends": 1, "batches": 1, "deliveries": 3, "attempts": 3, "operation_items": 1}
    assert [operation(ledger, made.id).emptied_at is None for made in (stuck, free)] == [True, False]
    (line,) = [record.__dict__ for record in caplog.records if record.message == "retention_left_out"]
    assert (line["event_id"], line["operation"]) == (3613, str(stuck.id))
    assert clean(worker).removed == {"operation_items": 1}


def ended(ledger: Ledger, ago: str) -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET ended_at = now() - %s::interval", [ago])


def test_items_of_dead_letters_go_with_their_notifications(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always("/bad", answer(400))
        make_channel(ledger, server.url + "/bad", max_delivery_attempts=1)
        post(ledger, "a")
        tell(worker)
    with ledger.transaction() as connection:
        now = requeue.ledger_now(connection)
        operations.plan(
            connection, OperationKind.REQUEUE, DeadLetterFilter(), operator="kim", reason=None, as_of=now, undo_s=0
        )
    finish(ledger)
    ended(ledger, "31 days")
    assert "operation_items" not in clean(worker).removed
    with ledger.transaction() as connection:
        connection.execute("DELETE FROM notification")
    assert clean(worker).removed["operation_items"] == 1


def test_of_an_old_sends_message_only_the_subject_stays(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=1, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1], "sent", attempts=1)
    worker.tick()
    make_old(ledger, send)
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE send SET params = %s, content = %s",
            [
                Jsonb({"name": "Ann"}),
                Jsonb({"email": {"subject": "Hi {{ name }}", "text": "t", "html": "h"}, "sms": {"text": "t"}}),
            ],
        )
    clean(worker)
    with ledger.autocommit() as connection:
        left = connection.execute("SELECT params, content FROM send").fetchone()
    assert left == ({}, {"email": {"subject": "Hi {{ name }}"}, "sms": {}})
