"""Retention: what is old and final goes, what is not stays, and the books balance all the while."""

import itertools
import logging
from typing import Any

import pytest

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.domain.states import SendStatus
from shared.ledger import (
    operation_results,
    operations,
    requeue,
    retention,
)
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.integration.workers.retaining import clean, count, make_old
from tests.support.digests import LOOPBACK, age, event, finding, make_channel, post, put, statuses
from tests.support.factories import make_send
from tests.support.ledger_rows import put_rows
from tests.support.requeuing import finish, operation, plan
from tests.support.scripted_http import answer, scripted_http
from workers.actors.digest import Dispatch
from workers.actors.retention import run_retention


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK, retention_days=30, notification_retention_days=30)


def tell(worker: InProcess) -> None:
    Dispatch(worker.runtime, worker.jobs).run()


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


def test_what_died_long_ago_is_not_called_over_while_its_finding_is_so(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always("/hook", answer(400))
        put(ledger, "lasting", "ending")
        make_channel(ledger, server.url + "/hook", max_delivery_attempts=1)
        post(ledger, event("of the lasting", finding="lasting"), event("of the ending", finding="ending"), "of none")
        tell(worker)
        age(ledger, "31 days")
        with ledger.transaction() as connection:
            connection.execute("UPDATE event SET received_at = now() - interval '31 days'")
        put(ledger, finding("ending", active=False))
        clean(worker)
        assert statuses(ledger) == {"lasting": "suppressed", "of the lasting": "dead_lettered"}
        assert count(ledger, "event") == 1
        with ledger.transaction() as connection:
            now = requeue.ledger_now(connection)
            operations.plan(
                connection, OperationKind.REQUEUE, DeadLetterFilter(), operator="kim", reason=None, as_of=now, undo_s=0
            )
        finish(ledger)
        tell(worker)
        (item,) = server.posts("/hook")[-1].json()["data"]["items"]
    assert (item["dedup_key"], item["over"]) == ("of the lasting", False)


def test_what_is_known_stays_while_another_finding_of_its_key_is_so(ledger: Ledger, worker: InProcess) -> None:
    put(ledger, finding("first", dedup_key="same"))
    make_channel(ledger, "https://example.com/x")
    put(ledger, finding("first", active=False, dedup_key="same"), finding("second", dedup_key="same"))
    age(ledger, "400 days")
    clean(worker)
    assert statuses(ledger) == {"same": "suppressed"}


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


def test_chunks_get_smaller_where_the_ledger_is_slow_and_each_tells_how_far_it_is(
    ledger: Ledger, worker: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$"
        )
        connection.execute("CREATE TRIGGER slow AFTER DELETE ON event FOR EACH STATEMENT EXECUTE FUNCTION slowly()")
    post(ledger, *(event(f"{n}") for n in range(1_400)))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE event SET received_at = now() - interval '31 days'")
    with caplog.at_level(logging.INFO):
        run_retention(worker.runtime, every_s=0.0, say_s=0.0)
    lines = [record.__dict__ for record in caplog.records if record.message == "retention_progress"]
    assert {line["event_id"] for line in lines} == {3610}
    far = [line["removed_events"] for line in lines if "removed_events" in line]
    chunks = [far[0], *(now - before for before, now in itertools.pairwise(far) if now > before)]
    assert chunks[0] == 1_000
    assert chunks[1] <= 250  # what took 0.2 s is aimed at 0.05 s
    assert sum(chunks) == 1_400


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


def test_what_an_operation_did_is_written_down_before_it_is_removed(ledger: Ledger, make_worker: MakeWorker) -> None:
    worker = make_worker(retention_days=1)
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    made = plan(ledger, FailureFilter(ids=((send.id, 1), (send.id, 2))), kind=OperationKind.DISCARD)
    finish(ledger)
    ended(ledger, "25 hours")
    make_old(ledger, send, "26 hours")
    assert clean(worker).removed == {}
    assert clean(worker).removed == {"sends": 1, "batches": 1, "deliveries": 3, "attempts": 3, "operation_items": 2}
    with ledger.autocommit() as connection:
        assert operation_results.outcome(connection, made.id).counts == {"discarded": 2}


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
