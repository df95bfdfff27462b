"""Retention of sends: rows go, totals stay, and the books balance at every moment, also through a kill."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from shared.domain.books import ChannelBooks
from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.domain.states import Channel, DeliveryStatus, SendEventKind, SendStatus
from shared.jobs import JobName
from shared.ledger import books, deliveries, retention, send_events, send_page, sends
from shared.ledger.db import Connection, Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.integration.workers.retaining import clean, count, make_old
from tests.support.digests import LOOPBACK, make_channel, put
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import put_rows, scalar
from tests.support.processes import ProcessStarter
from tests.support.requeuing import finish, of, operation, plan, preview
from tests.support.waiting import wait_until
from workers.actors.retention import run_retention

DAY_S = 86_000.0


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK, retention_days=30, notification_retention_days=30)


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


def test_the_batches_of_a_large_send_go_in_chunks_and_its_books_balance_at_every_moment(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=60, status=SendStatus.SENDING, batch_size=10)
    put_rows(ledger, send.id, range(1, 51), "sent", attempts=1)
    put_rows(ledger, send.id, range(51, 61), "failed", attempts=1)
    worker.tick()
    make_old(ledger, send)
    with ledger.autocommit() as connection:
        before = of_every_reader(connection, send)
    assert before[0].sent == 50
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id)
    after = -1
    for expected in (4, 2, 0):
        with ledger.transaction() as connection:
            gone, after = retention.remove_batches(connection, send.id, after=after, limit=4)
            assert of_every_reader(connection, send) == before
        assert gone == expected
        with ledger.autocommit() as connection:
            (found,) = retention.old_sends(connection, days=30, limit=10)
        assert found.begun
        with (
            ledger.transaction() as connection
        ):  # nobody begins again what is begun: the totals would be those of the rest
            assert not retention.begin_forgetting(connection, send.id)
    assert clean(worker).removed == {"sends": 1, "deliveries": 60, "attempts": 60}
    with ledger.autocommit() as connection:
        assert of_every_reader(connection, send) == before


def of_every_reader(connection: Connection, send: MadeSend) -> list[ChannelBooks]:
    """A send's books as each of those who read them has them; they are in balance."""
    (line,) = books.lines(connection, send_id=send.id)
    shown = send_page.find(connection, send.id)
    assert shown is not None
    told = sends.find(connection, tenant_id=shown.tenant_id, send_id=send.id)
    assert told is not None
    found = [line.books, shown.books[Channel.EMAIL], told.books[Channel.EMAIL]]
    assert [each.unaccounted for each in found] == [0, 0, 0]
    assert books.sends_out_of_balance(connection, limit=10) == []
    assert books.deliveries_out_of_balance(connection, send.id, limit=10) == []
    return found


def test_batches_are_not_removed_before_the_totals_are_written_down(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=60, status=SendStatus.SENDING)
    worker.run(send)
    worker.tick()
    with ledger.transaction() as connection:
        assert retention.remove_batches(connection, send.id, after=-1, limit=10) == (0, -1)
    assert count(ledger, "batch", send.id) == 3


def test_a_run_that_is_killed_between_batches_is_gone_on_with(
    ledger: Ledger, worker: InProcess, process: ProcessStarter
) -> None:
    send = make_send(ledger, count=2_500, status=SendStatus.SENDING, batch_size=1)
    put_rows(ledger, send.id, range(1, 2_501), "sent", attempts=1)
    worker.tick()
    make_old(ledger, send)
    with ledger.autocommit() as connection:
        before = of_every_reader(connection, send)
    kill_in_the_middle(ledger, worker, process, of="batch", rows="batch_no = 2400", send=send)
    left = count(ledger, "batch", send.id)
    assert 0 < left < 2_500
    with ledger.autocommit() as connection:
        begun = retention.newest(connection)
        assert begun is not None
        assert (begun.ended_at, begun.removed) == (None, {"batches": 2_500 - left})
        assert of_every_reader(connection, send) == before
        connection.execute("UPDATE retention_run SET progress_at = now() - interval '3 minutes'")
    run_retention(worker.runtime)
    with ledger.autocommit() as connection:
        done = retention.newest(connection)
        assert done is not None
        assert done.removed == {"sends": 1, "batches": 2_500, "deliveries": 2_500, "attempts": 2_500}
        assert of_every_reader(connection, send) == before


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
    kill_in_the_middle(ledger, worker, process, of="delivery", rows="row_no = 3000", send=old)
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


def kill_in_the_middle(
    ledger: Ledger, worker: InProcess, process: ProcessStarter, *, of: str, rows: str, send: MadeSend
) -> None:
    """Have a worker process begin a run, and kill it while it waits for rows of a table."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
        f" AND datname = current_database() AND query LIKE '%%DELETE FROM {of}%%'"
    )
    with ledger.transaction() as connection:
        connection.execute(f"SELECT 1 FROM {of} WHERE send_id = %s AND {rows} FOR UPDATE", [send.id])  # type: ignore[arg-type]
        victim = process(
            ["dramatiq", "workers.main", "--queues", "ops", "--processes", "1", "--threads", "2"],
            env={"RETENTION_DAYS": "30", "NOTIFICATION_RETENTION_DAYS": "30"},
            ready="ready for action",
        )
        worker.jobs.periodic(JobName.RETENTION, slot=0)
        waits = f"{asked} AND wait_event_type = 'Lock'"
        wait_until(lambda: bool(scalar(ledger, waits)), timeout=30, what="it to be in the middle of a chunk")
        victim.kill()
    wait_until(lambda: not scalar(ledger, asked), timeout=30, what="its connection to end")


def test_a_requeued_send_is_not_forgotten_under_the_persons_hands(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    worker.run(send)
    worker.tick()
    make_old(ledger, send)
    with ledger.autocommit() as connection:
        (found,) = retention.old_sends(connection, days=30, limit=10)
        connection.execute("UPDATE send SET status = 'sending', completed_at = NULL WHERE id = %s", [send.id])
    with ledger.transaction() as connection:
        assert not retention.begin_forgetting(connection, found.id)
    assert count(ledger, "batch", send.id) == 2


def test_what_retention_has_begun_to_remove_is_never_requeued(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "failed", attempts=1)
    worker.tick()
    make_old(ledger, send)
    planned = plan(ledger, FailureFilter(ids=((send.id, 2),)))
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id)
    finish(ledger)
    assert (operation(ledger, planned.id).done, operation(ledger, planned.id).skipped) == (0, 1)
    for asked, missing in ((of(send), 3), (FailureFilter(ids=((send.id, 1), (send.id, 9))), 2)):
        seen = preview(ledger, asked)
        assert (seen.total, seen.left_out) == (0, {LeftOut.MISSING: missing})
    assert clean(worker).removed == {"sends": 1, "batches": 1, "deliveries": 3, "attempts": 3}
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
            assert not retention.begin_forgetting(connection, send.id)
        asked = FailureFilter(ids=((send.id, row),), statuses=frozenset({DeliveryStatus.UNSURE}))
        plan(ledger, asked, kind=OperationKind.DISCARD)
        finish(ledger)
    with ledger.transaction() as connection:
        assert retention.begin_forgetting(connection, send.id)
    now = datetime.now(UTC)
    with ledger.transaction() as connection:  # a proof that comes now changes no books that are closed
        late = deliveries.Result(1, 0, DeliveryStatus.SENT, True, None, None, "accepted", None, None, None, now, None)
        call = deliveries.Claim(send.id, Channel.EMAIL, claim, now, "sandbox")
        assert not deliveries.record_late(connection, call, late, late_claim=uuid4())
    assert clean(worker).removed == {"sends": 1, "batches": 1, "deliveries": 2, "attempts": 2}
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
        assert retention.begin_forgetting(connection, send.id)
    assert told() == (1, 2, 0)
    with ledger.transaction() as connection:
        assert retention.remove_batches(connection, send.id, after=-1, limit=9) == (1, 0)
    assert told() == (1, 2, 0)
    with ledger.transaction() as connection:
        retention.remove_deliveries(connection, send.id, first=1, last=2)
    assert told() == (1, 2, 0)
    clean(worker)
    assert told() == (1, 2, 0)


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
