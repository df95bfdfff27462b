"""The pool: what one statement's misfortune means for the next one, and what a session is set to."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from decimal import Decimal

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shared.ledger.db import POSTGRES_AWAY, Connection, Ledger, conninfo, sqlalchemy_url
from tests.support.factories import make_tenant
from tests.support.ledger_rows import scalar


def fail_after_a_write(lend: Callable[[], AbstractContextManager[Connection]], name: str) -> None:
    with suppress(ZeroDivisionError), lend() as connection:
        make_tenant(connection, name)
        raise ZeroDivisionError


def tenants(ledger: Ledger) -> int:
    return int(scalar(ledger, "SELECT count(*) FROM tenant"))


def test_a_transaction_commits_at_its_end_and_rolls_back_on_any_exception(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        make_tenant(connection)
    fail_after_a_write(ledger.transaction, "globex")
    assert tenants(ledger) == 1


def test_a_failed_statement_poisons_nothing_that_comes_after_it(database_url: str) -> None:
    ledger = Ledger(database_url, size=1, name="one")
    ledger.open()
    with ledger.transaction() as connection:
        make_tenant(connection)
    for lend in (ledger.transaction, ledger.autocommit, ledger.transaction_later_durable):
        with pytest.raises(psycopg.errors.UniqueViolation), lend() as connection:
            connection.execute("INSERT INTO tenant (name) VALUES ('acme')")
        assert tenants(ledger) == 1
    ledger.close()


def test_sessions_cut_by_the_server_cost_the_next_caller_no_error(ledger: Ledger, postgres_url: str) -> None:
    with ledger.autocommit() as first, ledger.autocommit() as second:
        cut = [connection.info.backend_pid for connection in (first, second)]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) AS pid", [cut])
    assert tenants(ledger) == 0
    with ledger.transaction() as connection:
        make_tenant(connection)
    assert tenants(ledger) == 1


def test_a_connection_lent_for_single_statements_is_a_transaction_again_afterwards(database_url: str) -> None:
    ledger = Ledger(database_url, size=1, name="one")
    ledger.open()
    fail_after_a_write(ledger.autocommit, "acme")
    assert tenants(ledger) == 1
    fail_after_a_write(ledger.transaction, "globex")
    assert tenants(ledger) == 1
    ledger.close()


def test_only_outcomes_do_not_wait_for_the_disk(database_url: str) -> None:
    ledger = Ledger(database_url, size=1, name="one")
    ledger.open()
    with ledger.transaction_later_durable() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    for lend in (ledger.transaction, ledger.autocommit):
        with lend() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    ledger.close()


def test_numbers_of_params_come_back_as_they_were_written(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        row = connection.execute("SELECT %s::jsonb", [Jsonb({"n": 1})]).fetchone()
        price = connection.execute("""SELECT '{"price": 1.10, "zero": 0, "no": false}'::jsonb""").fetchone()
    assert row == ({"n": 1},)
    assert price == ({"price": Decimal("1.10"), "zero": 0, "no": False},)
    assert price is not None
    assert str(price[0]["price"]) == "1.10"


def test_addresses_of_heroku_and_of_libpq_both_work() -> None:
    assert conninfo("postgres://u:p@h:1/d?sslmode=require") == "postgresql://u:p@h:1/d?sslmode=require"
    assert sqlalchemy_url("postgres://u:p@h:1/d") == "postgresql+psycopg://u:p@h:1/d"


def test_a_server_that_is_away_is_asked_again_every_few_seconds_however_long_it_lasts() -> None:
    knocks: list[float] = []

    def refuse(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                knocking, _ = listener.accept()
                knocks.append(time.monotonic())
                knocking.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=refuse, args=(listener,), daemon=True).start()
        ledger = Ledger(f"postgresql://nobody@127.0.0.1:{port}/nothing", size=2, name="away", patience_s=0.5)
        ledger.open()
        until = time.monotonic() + 12
        while time.monotonic() < until:
            with pytest.raises(POSTGRES_AWAY), ledger.autocommit():
                raise AssertionError("there is no server")
        ledger.close()
        listener.shutdown(socket.SHUT_RDWR)
    gaps = [later - earlier for earlier, later in zip(knocks, [*knocks[1:], until], strict=True)]
    assert max(gaps) < 3, gaps
