"""A Postgres that hangs: its processes are stopped, its connections stay open, and it says nothing more."""

import time
from collections.abc import Iterator

import psycopg
import pytest

from admin.app import create_app
from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from shared.ledger.db import POSTGRES_AWAY, Ledger
from shared.ledger.migrate import upgrade
from tests.integration.api.conftest import Api, email, key_of, make_settings, release
from tests.support.freezer import Freezer
from tests.support.servers import POSTGRES_OPTIONS, server_folder


@pytest.fixture
def freezer(tether: Tether) -> Iterator[Freezer]:
    with server_folder() as folder:
        server = Postgres(folder, tether=tether, account=server_account(), options=POSTGRES_OPTIONS)
        freezer = Freezer(server)
        try:
            yield freezer
        finally:
            freezer.stop()


def test_a_loan_from_a_frozen_server_ends_in_seconds_and_all_is_well_once_it_goes_on(freezer: Freezer) -> None:
    ledger = Ledger(freezer.url, size=2, name="frozen", patience_s=4.0)
    ledger.open()
    with ledger.autocommit() as first, ledger.autocommit() as second:
        for connection in (first, second):
            connection.execute("SELECT 1")
            # as after a pause: it has not answered for longer than is taken on trust
            connection.heard_at = float("-inf")  # type: ignore[attr-defined]
    freezer.freeze()
    started = time.monotonic()
    with pytest.raises(POSTGRES_AWAY), ledger.autocommit():
        raise AssertionError("nobody answers")
    assert time.monotonic() - started < 7
    freezer.thaw()
    with ledger.autocommit() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    ledger.close()


def test_a_statement_under_way_when_the_server_freezes_is_given_up_after_its_time(freezer: Freezer) -> None:
    ledger = Ledger(freezer.url, size=1, name="frozen", statement_s=1.0)
    ledger.open()

    def be_frozen_between_two_statements() -> None:
        with ledger.transaction() as connection:
            connection.execute("SELECT 1")
            freezer.freeze()
            connection.execute("SELECT 2")

    with pytest.raises(psycopg.OperationalError, match="does not answer"):
        be_frozen_between_two_statements()
    freezer.thaw()
    with ledger.transaction() as connection:
        assert connection.execute("SELECT 3").fetchone() == (3,)
    ledger.close()


def test_a_submission_to_a_frozen_ledger_is_told_to_come_again(freezer: Freezer, redis_url: str) -> None:
    upgrade(freezer.url)
    app = create_app(make_settings(freezer.url, redis_url))
    ledger = Ledger(freezer.url, size=1, name="hand")
    ledger.open()
    tenant_id, key_id, secret = key_of(ledger, "acme", email_from="Acme <news@example.com>")
    ledger.close()
    freezer.freeze()
    started = time.monotonic()
    answer = Api(app.test_client(), secret, tenant_id, key_id).submit(email())
    assert time.monotonic() - started < 7
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    freezer.thaw()
    release(app)
