"""The table of open failures: kept by whatever moves a delivery, and by nothing else."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

import pytest
from alembic import command
from alembic.script import ScriptDirectory

from shared.domain.ids import new_send_id
from shared.domain.requeue import FailureFilter, OperationKind
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus
from shared.ledger import acceptance, books, failed_jobs, failure_counts, failures, sends
from shared.ledger.acceptance import AcceptedRow, ChannelRows, Submission
from shared.ledger.db import Connection, Ledger
from shared.ledger.failure_counts import Fresh
from shared.ledger.migrate import alembic_config, upgrade
from tests.integration.ledger.hand import Hand, ended
from tests.support.books import assert_books_balance
from tests.support.factories import make_send, make_tenant
from tests.support.failing import CAUSE, fail_again, make_failures
from tests.support.ledger_rows import one, put_rows, scalar
from tests.support.requeuing import finish, plan
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("balanced")


def test_what_settles_a_delivery_is_noted_with_its_cause(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    states = (DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED, DeliveryStatus.SENT)
    hand.record(claim, *(ended(row, became) for row, became in zip(rows, states, strict=True)))
    hand.release(send)
    assert scalar(ledger, "SELECT array_agg(status ORDER BY row_no) FROM failure") == ["failed", "dead_lettered"]
    noted = one(ledger, "SELECT * FROM failure WHERE row_no = 2")
    assert (noted["signature"], noted["code"], noted["epoch"], noted["proving"]) == ("0123456789ab", "code", 0, False)
    assert noted["failed_at"] == scalar(ledger, "SELECT settled_at FROM delivery WHERE row_no = 2")
    assert noted["provider"] == scalar(ledger, "SELECT provider FROM attempt WHERE row_no = 2")


def test_a_dead_worker_leaves_a_failure_that_is_proved_then_parked_then_gone(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    hand.die()
    assert hand.free(send) == 1
    noted = one(ledger, "SELECT status, code, proving FROM failure")
    assert noted == {"status": "unsure", "code": "worker_died", "proving": noted["proving"]}
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET proving = 0, prove_at = NULL, settled_at = now()")
        connection.execute("UPDATE delivery SET prove_at = NULL, settled_at = now()")
    assert one(ledger, "SELECT proving FROM failure") == {"proving": False}
    hand.record_late(claim, ended(rows[0], DeliveryStatus.SENT))
    assert scalar(ledger, "SELECT count(*) FROM failure") == 0


def test_what_is_refused_at_acceptance_is_a_failure_of_its_tenant_with_its_reason(ledger: Ledger) -> None:
    send_id = new_send_id()
    with ledger.transaction() as connection:
        tenant_id, key_id = make_tenant(connection)
        rows = [
            AcceptedRow(1, "ada@example.com", None, None, None, None),
            AcceptedRow(2, "nobody", None, None, None, "is not an e-mail address"),
        ]
        acceptance.store_rows(connection, send_id=send_id, channel=Channel.EMAIL, rows=rows, now=datetime.now(UTC))
        assert connection.execute("SELECT count(*) FROM failure").fetchone() == (0,)
        store(connection, send_id, tenant_id, key_id)
    noted = one(ledger, "SELECT row_no, tenant_id, refused, provider FROM failure")
    assert noted == {"row_no": 2, "tenant_id": tenant_id, "refused": True, "provider": None}
    with ledger.transaction() as connection:
        (group,) = failures.groups(connection, FailureFilter(), by="error", limit=5)
        cause = failures.causes(connection, [group.key])[group.key]
    assert (cause.title, cause.outcome) == ("is not an e-mail address", "refused")


def store(connection: Connection, send_id: UUID, tenant_id: int, key_id: int) -> None:
    submission = Submission(
        send_id=send_id,
        tenant_id=tenant_id,
        api_key_id=key_id,
        mode=Mode.LIVE,
        name=None,
        content={"email": {}},
        params={},
        send_at=None,
        valid_until=None,
    )
    rows = ChannelRows(Channel.EMAIL, 1, count=2)
    rows.failed[0] = 1
    acceptance.store_send(connection, submission, channels=[rows], lane=Lane.BULK, batch_size=25)


def test_a_delivery_that_is_removed_takes_its_failure_along(ledger: Ledger) -> None:
    send = make_failures(ledger, count=2)
    with ledger.transaction() as connection:
        for table in ("delivery", "batch", "send"):
            column = "id" if table == "send" else "send_id"
            connection.execute(f"DELETE FROM {table} WHERE {column} = %s", [send.id])  # type: ignore[arg-type]
        connection.execute("DELETE FROM minute_count")
    assert scalar(ledger, "SELECT count(*) FROM failure") == 0


def test_equal_addresses_have_equal_hashes_and_the_key_is_of_this_ledger(ledger: Ledger) -> None:
    make_failures(ledger, addresses=["Ada@Example.com", "ada@example.com", "bob@example.com"])
    hashes = scalar(ledger, "SELECT array_agg(encode(address_hash, 'hex') ORDER BY row_no) FROM failure")
    assert hashes[0] == hashes[1] != hashes[2]
    with ledger.transaction() as connection:
        assert failures.address_hash(connection, Channel.EMAIL, "ADA@example.com") == hashes[0]
        assert failures.address_hash(connection, Channel.SMS, "ada@example.com") != hashes[0]
        connection.execute("UPDATE address_key SET key = sha256('another')")
        assert failures.address_hash(connection, Channel.EMAIL, "ada@example.com") != hashes[0]


def test_what_failed_before_the_table_was_made_is_in_it(empty_database_url: str) -> None:
    command.upgrade(alembic_config(empty_database_url), "0006_pre_minutes")
    old = Ledger(empty_database_url, size=2, name="old")
    old.open()
    try:
        send = make_send(old, count=60, status=SendStatus.SENDING)
        for rows, status in ((range(1, 4), "failed"), (range(30, 40), "dead_lettered"), (range(50, 55), "unsure")):
            put_rows(old, send.id, rows, status, attempts=1)
        put_rows(old, send.id, [60], "unsure", prove_in="1 minute")
        with old.autocommit() as connection:
            connection.execute("UPDATE attempt SET became = 'dead_lettered', signature = %s WHERE row_no = 30", [CAUSE])
        upgrade(empty_database_url)
        assert_books_balance(old, except_for=frozenset({"the counts of the minutes sum to the books"}))
        assert scalar(old, "SELECT count(*) FROM failure") == 19
        assert scalar(old, "SELECT count(*) FROM failure WHERE proving") == 1
        assert one(old, "SELECT signature FROM failure WHERE row_no = 30") == {"signature": CAUSE}
    finally:
        old.close()


def test_filling_the_table_up_gives_way_to_who_wants_the_same_rows_the_other_way_round(
    ledger: Ledger, database_url: str
) -> None:
    send = make_failures(ledger, count=3, status="unsure")
    fill = ScriptDirectory.from_config(alembic_config(database_url)).get_revision("0007_pre_failures").module
    settle = "UPDATE delivery SET status = 'failed', claim_id = NULL WHERE send_id = %s AND row_no = %s"

    def fill_up() -> None:
        with ledger.autocommit() as own:
            own.execute(f"SET lock_timeout = {fill._GIVES_WAY_MS}")
            own.execute(fill._FILL)
            own.execute("RESET lock_timeout")

    def waits() -> bool:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%after_batch%%'"
        return bool(scalar(ledger, f"{asked} AND datname = current_database()"))

    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM failure")
    with ThreadPoolExecutor(1) as pool:
        with ledger.transaction() as connection:
            connection.execute(settle, [send.id, 2])
            filling = pool.submit(fill_up)
            wait_until(waits, timeout=30, what="it to come to the row that is being settled")
            connection.execute(settle, [send.id, 1])
        filling.result()
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET unsure = 1, failed = 2 WHERE send_id = %s", [send.id])
        noted = connection.execute("SELECT row_no, status FROM failure ORDER BY row_no").fetchall()
    assert noted == [(1, "failed"), (2, "failed"), (3, "unsure")]


def test_a_discarded_delivery_has_its_own_column_of_the_books_until_it_is_restored(ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    plan(ledger, FailureFilter(send_id=send.id, first=2), kind=OperationKind.DISCARD)
    finish(ledger)
    with ledger.transaction() as connection:
        tenant = scalar(ledger, "SELECT tenant_id FROM send")
        found = sends.find(connection, tenant_id=tenant, send_id=send.id)
        (line,) = books.lines(connection, send_id=send.id)
    assert found is not None
    for shown in (found.books[Channel.EMAIL], line.books):
        assert (shown.dead_lettered, shown.discarded, shown.settled, shown.unaccounted) == (1, 2, 3, 0)
    plan(ledger, FailureFilter(send_id=send.id), kind=OperationKind.RESTORE)
    finish(ledger)
    with ledger.transaction() as connection:
        (line,) = books.lines(connection, send_id=send.id)
    assert (line.books.dead_lettered, line.books.discarded) == (3, 0)


def test_what_failed_for_a_cause_after_another_requeue_is_not_that_of_the_causes_own(ledger: Ledger) -> None:
    send = make_failures(ledger, count=2)
    other = "bbbbbbbbbbbb"
    requeue = plan(ledger, FailureFilter(signature=CAUSE))
    finish(ledger)
    fail_again(ledger, send.id, [1, 2])

    def again() -> tuple[UUID | None, int]:
        with ledger.transaction() as connection:
            found = failures.causes(connection, [CAUSE])[CAUSE]
        return found.operation, found.again

    assert again() == (requeue.id, 2)
    with ledger.autocommit() as connection:  # row 1 as if it had failed for another cause, for which it is requeued
        connection.execute("UPDATE failure SET signature = %s WHERE row_no = 1", [other])
    plan(ledger, FailureFilter(signature=other))
    finish(ledger)
    fail_again(ledger, send.id, [1])
    assert again() == (requeue.id, 1)


def test_what_failed_lately_and_is_open_is_counted_by_channel_unless_it_is_too_much(ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, status="failed")
    make_failures(ledger, status="failed", channel=Channel.SMS)
    make_failures(ledger, status="unsure")
    with ledger.transaction() as connection:
        found = failure_counts.fresh(connection, minutes=15, most=4)
        assert found == {Channel.EMAIL: Fresh(5, 3), Channel.SMS: Fresh(1, 0)}
        assert failure_counts.fresh(connection, minutes=15, most=3) is None


def test_failures_of_test_sends_are_not_counted_and_do_not_hide_that_there_may_be_live_ones(ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    with ledger.transaction() as connection:
        connection.execute("UPDATE send SET mode = 'test'")
        connection.execute("UPDATE minute_count SET mode = 'test'")
        assert failure_counts.fresh(connection, minutes=15, most=4) == {}
        assert failure_counts.fresh(connection, minutes=15, most=3) is None


def test_what_is_discarded_is_not_requeued_not_even_by_a_plan_from_before(ledger: Ledger) -> None:
    send = make_failures(ledger, count=2)
    requeue = plan(ledger, FailureFilter(send_id=send.id), undo_s=600)
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE failure SET discarded_at = now(), discarded_by = 'lee', discarded_operation = gen_random_uuid()"
            " WHERE row_no = 1"
        )
        connection.execute("UPDATE operation SET run_at = now()")
    finish(ledger)
    assert one(ledger, "SELECT done, skipped FROM operation WHERE id = %s", requeue.id) == {"done": 1, "skipped": 1}
    assert scalar(ledger, "SELECT why FROM operation_item WHERE result = 'skipped'") == "discarded"
    assert scalar(ledger, "SELECT array_agg(row_no) FROM failure") == [1]


def test_the_newest_thousand_failed_jobs_are_kept(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        for number in range(1_003):
            failed_jobs.record(connection, queue="ops", job="prove", kind="raised", send_id=None, error=f"e {number}")
        assert connection.execute("SELECT count(*), min(error) FROM failed_job").fetchone() == (1_000, "e 10")
        assert [job.error for job in failed_jobs.newest(connection, limit=2)] == ["e 1002", "e 1001"]


def test_the_triggers_work_for_whoever_has_no_search_path_as_a_dump_that_is_restored(ledger: Ledger) -> None:
    make_send(ledger, count=2, status=SendStatus.SENDING)
    with ledger.autocommit() as connection, connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        for change in ("status = 'dead_lettered', settled_at = now()", "receipt_status = 'delivered'"):
            connection.execute(f"UPDATE public.delivery SET {change} WHERE row_no = 1")  # type: ignore[arg-type]
        connection.execute(
            "INSERT INTO public.suppression (tenant_id, channel, address, reason)"
            " SELECT tenant_id, 'email', 'gone@example.com', 'bounced' FROM public.send"
        )
        noted = connection.execute("SELECT row_no, reported FROM public.failure").fetchall()
        hashed = connection.execute("SELECT length(address_hash) FROM public.suppression").fetchall()
    assert (noted, hashed) == ([(1, True)], [(16,)])
