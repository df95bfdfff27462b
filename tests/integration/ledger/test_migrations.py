import subprocess
import sys
import threading
import time
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy.exc
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from shared.domain.requeue import FailureFilter, LeftOut
from shared.ledger import requeue
from shared.ledger.db import Ledger, sqlalchemy_url
from shared.ledger.migrate import alembic_config, upgrade
from shared.ledger.models import Base
from tests.support.books import assert_books_balance
from tests.support.factories import make_tenant
from tests.support.failing import make_failures
from tests.support.ledger_rows import scalar
from tests.support.processes import CHECKOUT
from tests.support.waiting import wait_until

_UPGRADE = "import sys; from shared.ledger.migrate import upgrade; upgrade(sys.argv[1])"


def version(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT version_num FROM alembic_version")]


def test_models_and_migrations_make_the_same_schema(database_url: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_models_and_migrations_have_the_same_checks_and_storage(empty_database_url: str, database_url: str) -> None:
    # Alembic compares neither CHECKs, nor predicates of indexes, nor storage options. Triggers are no models' matter.
    engine = create_engine(sqlalchemy_url(empty_database_url))
    Base.metadata.create_all(engine)
    engine.dispose()
    assert shape(empty_database_url) == shape(database_url)


def shape(url: str) -> set[tuple[str, ...]]:
    query = """
        SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 't'
        UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'storage', relname, '', coalesce(reloptions::text, '') FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    """
    with psycopg.connect(url) as connection:
        return {row for row in connection.execute(query) if "alembic_version" not in row[1]}


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    first = shape(empty_database_url)
    upgrade(empty_database_url)
    assert shape(empty_database_url) == first
    heads = ScriptDirectory.from_config(alembic_config(empty_database_url)).get_heads()
    assert version(empty_database_url) == heads
    assert len(heads) == 1


def test_a_migration_waits_for_no_lock_and_runs_no_statement_for_longer_than_it_may(empty_database_url: str) -> None:
    command.upgrade(alembic_config(empty_database_url), "0001_pre_ledger")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE bound (lock text, statement text)")
        connection.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO bound"
            " SELECT current_setting('lock_timeout'), current_setting('statement_timeout'); RETURN NULL; END $$"
        )
        connection.execute("CREATE TRIGGER note AFTER UPDATE ON alembic_version EXECUTE FUNCTION note()")
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        seen = connection.execute("SELECT DISTINCT lock, statement, count(*) > 10 FROM bound GROUP BY 1, 2").fetchall()
    assert seen == [("5s", "5min", True)]


def test_a_pause_from_before_is_told_apart_into_who_and_why(empty_database_url: str) -> None:
    command.upgrade(alembic_config(empty_database_url), "0017_pre_operation_results")
    send_id, other_id = uuid4(), uuid4()
    with psycopg.connect(empty_database_url) as connection:
        tenant, key = make_tenant(connection, "acme")
        for each, reason in ((send_id, "Kim: Wu: wrong list"), (other_id, "Kim: typed by the tenant")):
            connection.execute(
                "INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, content, accepted, paused_at,"
                " pause_reason) VALUES (%s, %s, %s, 'live', 'bulk', 'paused', '{}', '{}', now(), %s)",
                [each, tenant, key, reason],
            )
        connection.execute(
            "INSERT INTO audit (operator, action, target, reason, result)"
            " VALUES ('Kim: Wu', 'pause send', %s, 'wrong list', 'done')",
            [f"send {send_id}"],
        )
    with psycopg.connect(empty_database_url) as holder:  # where the rows cannot be gone through, the column is there
        holder.execute("LOCK TABLE audit")
        with pytest.raises(sqlalchemy.exc.OperationalError):
            upgrade(empty_database_url)
        assert holder.execute("SELECT paused_by FROM send").fetchall() == [(None,), (None,)]
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        rows = {row[0]: row[1:] for row in connection.execute("SELECT id, paused_by, pause_reason FROM send")}
    assert rows == {send_id: ("Kim: Wu", "wrong list"), other_id: (None, "Kim: typed by the tenant")}


def test_failures_from_before_learn_what_was_reported_and_suppressed(empty_database_url: str) -> None:
    command.upgrade(alembic_config(empty_database_url), "0025_pre_undecided_dead_letters")
    ledger = Ledger(empty_database_url, size=1, name="test")
    ledger.open()
    try:
        made = make_failures(ledger, count=4, addresses=[f"person{number}@example.com" for number in range(4)])
        with ledger.autocommit() as connection:
            for row_no, receipt in ((1, "delivered"), (2, "undelivered")):
                connection.execute("UPDATE delivery SET receipt_status = %s WHERE row_no = %s", [receipt, row_no])
            connection.execute(
                "INSERT INTO suppression SELECT id, 'email', 'person2@example.com', 'bounce' FROM tenant"
            )
        upgrade(empty_database_url)
        with ledger.autocommit() as connection:
            seen = requeue.judge(connection, FailureFilter(send_id=made.id), accepts_duplicates=False)
            added = (
                "INSERT INTO suppression (tenant_id, channel, address, reason) SELECT id, 'email', %s, 'b' FROM tenant"
            )
            connection.execute(added, ["person3@example.com"])  # as the release before still writes it
            later = requeue.judge(connection, FailureFilter(send_id=made.id), accepts_duplicates=False)
        assert_books_balance(ledger)
    finally:
        ledger.close()
    assert (seen.total, seen.left_out) == (2, {LeftOut.REPORTED: 1, LeftOut.SUPPRESSED: 1})
    assert (later.total, later.left_out) == (1, {LeftOut.REPORTED: 1, LeftOut.SUPPRESSED: 2})


def test_what_a_report_says_while_older_ones_are_noted_is_not_overwritten(ledger: Ledger, database_url: str) -> None:
    make_failures(ledger, count=30)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET receipt_status = 'sent'")
        connection.execute("UPDATE failure SET reported = false")  # as before the migration
    script = ScriptDirectory.from_config(alembic_config(database_url)).get_revision("0026_pre_reported_failures")

    def fill() -> None:
        with ledger.autocommit() as own:
            own.execute(script.module._FILL)

    with ledger.transaction() as holder:
        holder.execute("SELECT FROM failure WHERE row_no = 20 FOR UPDATE")
        other = threading.Thread(target=fill)
        other.start()
        wait_until(
            lambda: scalar(
                ledger,
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
            ),
            what="the fill to wait for a row",
        )
        with ledger.autocommit() as connection:
            connection.execute("UPDATE delivery SET receipt_status = 'undelivered' WHERE row_no IN (10, 25)")
    other.join(timeout=20)
    assert scalar(ledger, "SELECT count(*) FROM failure WHERE reported") == 28
    assert_books_balance(ledger)


def test_suppressed_addresses_from_before_get_their_hash_in_pages(empty_database_url: str) -> None:
    command.upgrade(alembic_config(empty_database_url), "0026_pre_reported_failures")
    with psycopg.connect(empty_database_url) as connection:
        make_tenant(connection)
        make_tenant(connection, "other")
        connection.execute(
            "INSERT INTO suppression SELECT t.id, channel, 'n' || number, 'bounce'"
            " FROM tenant t, unnest(ARRAY['email', 'sms']) AS channel, generate_series(1, 1200) AS number"
        )
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE address_hash = address_hash(channel, address)) FROM suppression"
        ).fetchall()
    assert found == [(4800, 4800)]


def test_indexes_of_notifications_are_built_beside_readers_and_a_run_that_was_broken_off_runs_again(
    empty_database_url: str, database_url: str
) -> None:
    config = alembic_config(empty_database_url)
    command.upgrade(config, "0014_pre_audit_account")
    with psycopg.connect(empty_database_url) as reader:
        reader.execute("SELECT 1 FROM notification")
        with pytest.raises(sqlalchemy.exc.OperationalError):  # only the last step cannot be done beside a reader
            command.upgrade(config, "0015_pre_notification_history")
        assert reader.execute("SELECT to_regclass('ix_notification_finding')").fetchone() != (None,)
    command.upgrade(config, "0015_pre_notification_history")
    command.stamp(config, "0014_pre_audit_account")  # as if killed before the version was written down
    upgrade(empty_database_url)
    assert shape(empty_database_url) == shape(database_url)


def test_processes_that_migrate_an_empty_database_at_the_same_time_all_succeed(empty_database_url: str) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", _UPGRADE, empty_database_url], cwd=CHECKOUT, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error.decode()
    assert len(version(empty_database_url)) == 1


def test_a_migration_that_cannot_have_its_lock_gives_up_instead_of_queueing_everybody_behind_it(
    empty_database_url: str,
) -> None:
    with psycopg.connect(empty_database_url) as holder:
        holder.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        holder.commit()
        holder.execute("LOCK TABLE alembic_version")
        started = time.monotonic()
        with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
            upgrade(empty_database_url)
        assert isinstance(caught.value.orig, psycopg.errors.LockNotAvailable)
        assert time.monotonic() - started < 15
        holder.rollback()
    upgrade(empty_database_url)
    assert len(version(empty_database_url)) == 1
