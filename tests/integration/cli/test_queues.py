"""`tidings queue`: what waits, and an operator's pause."""

import pytest
from click.testing import CliRunner, Result

from admin.cli.command import main
from shared.domain.states import SendStatus
from shared.jobs import JobName, Jobs, make_broker
from shared.ledger import pauses
from shared.ledger.db import Ledger
from tests.support.factories import make_send


@pytest.fixture
def tidings(database_url: str, redis_url: str):  # type: ignore[no-untyped-def]  # a plain function
    def run(*words: str, **environment: str) -> Result:
        stores = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "EMAIL_PROVIDER": "sandbox"}
        return CliRunner().invoke(main, words, env={**stores, **environment})

    return run


def test_a_queue_is_paused_listed_told_of_in_the_books_and_resumed(  # type: ignore[no-untyped-def]
    tidings, ledger: Ledger, redis_url: str
) -> None:
    broker = make_broker(redis_url, namespace="tidings", heartbeat_timeout_ms=20_000)
    Jobs(broker).periodic(JobName.DUE_WORK, slot=1)
    make_send(ledger, count=3, status=SendStatus.SENDING)
    done = tidings("queue", "pause", "email_bulk", "--reason", "the relay is being moved", "--operator", "kim")
    assert done.stdout == "email_bulk: paused; workers stop within seconds\n"
    assert "was paused already" in tidings("queue", "pause", "email_bulk", "--reason", "x").stdout

    listed = {line.split()[0]: line for line in tidings("queue", "list").stdout.splitlines() if line.strip()}
    assert "by kim since" in listed["email_bulk"]
    assert listed["ops"].split()[1:4] == ["1", "0", "0"]
    said = tidings("books").stdout
    assert "Queue email_bulk is paused by kim (the relay is being moved)" in said

    assert tidings("queue", "resume", "email_bulk").stdout == "email_bulk: resumed\n"
    assert tidings("queue", "resume", "email_bulk").stdout == "email_bulk: was not paused\n"
    with ledger.transaction() as connection:
        assert pauses.paused(connection) == {}
    broker.close()


@pytest.mark.parametrize(("name", "said"), [("ops", "cannot be paused"), ("emial", "there are email, email_bulk")])
def test_what_cannot_be_paused_is_said(tidings, name: str, said: str) -> None:  # type: ignore[no-untyped-def]
    result = tidings("queue", "pause", name, "--reason", "x")
    assert result.exit_code == 1
    assert said in result.stderr


def test_without_redis_the_pauses_are_listed_all_the_same(tidings) -> None:  # type: ignore[no-untyped-def]
    tidings("queue", "pause", "sms", "--reason", "a trial", "--operator", "kim")
    result = tidings("queue", "list", REDIS_URL="redis://127.0.0.1:1/0")
    assert "a trial" in result.stdout
    assert "does not answer" in result.stderr
