"""`tidings reconcile` and `tidings books`, for people on call."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from admin.cli import connection
from admin.cli.command import main
from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import put_rows

Tidings = Callable[..., Result]


@pytest.fixture
def tidings(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Tidings:
    monkeypatch.setattr(connection, "LOCAL_ENV", connection.LOCAL_ENV.with_name("no-such-file"))

    def run(*words: str, **environment: str) -> Result:
        env = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "EMAIL_PROVIDER": "sandbox", **environment}
        return CliRunner().invoke(main, words, env=env)

    return run


def test_a_pass_by_hand_frees_what_is_stuck_and_shows_among_the_last_passes(ledger: Ledger, tidings: Tidings) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1], "sending")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET holder = %s, chain_no = 0, leased_at = now()", [uuid4()])
    done = tidings("reconcile")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].split() == ["batch", "1", "1", "0", "0"]
    assert counts(ledger, send.id) == {"owed": 2, "unsure": 1}
    assert tidings("reconcile").stdout == "Nothing is stuck.\n"
    shown = tidings("reconcile", "--last", "5").stdout.splitlines()
    assert len(shown) == 3
    assert "batch: 1 found, 1 retried" in shown[2]


def test_a_pass_by_hand_works_without_redis_and_says_what_it_could_not_do(ledger: Ledger, tidings: Tidings) -> None:
    make_send(ledger, age="1 hour")
    held = make_send(ledger, status=SendStatus.SENDING)
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE batch SET holder = %s, chain_no = 0, leased_at = now() WHERE send_id = %s", [uuid4(), held.id]
        )
    done = tidings("reconcile", REDIS_URL="redis://127.0.0.1:1/0")
    assert done.exit_code == 1
    assert "Redis was away: no message could be enqueued" in done.stderr
    with ledger.autocommit() as connection:
        assert connection.execute("SELECT holder FROM batch WHERE send_id = %s", [held.id]).fetchone() == (None,)


def test_books_balance_and_say_where_what_is_owed_is(ledger: Ledger, tidings: Tidings) -> None:
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2, 3], "sent")
    put_rows(ledger, send.id, [4], "retrying")
    for words in (("books",), ("books", "--send", str(send.id))):
        shown = tidings(*words)
        assert shown.exit_code == 0, shown.output
        assert "ready to go" in shown.stdout
        assert "waiting for the next try" in shown.stdout
        assert shown.stdout.splitlines()[1].split()[-1] == "0"


def test_a_difference_ends_with_one_and_names_the_deliveries(ledger: Ledger, tidings: Tidings) -> None:
    send = make_send(ledger, count=50)
    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM batch WHERE batch_no = 1")
    shown = tidings("books")
    assert shown.exit_code == 1
    assert "UNACCOUNTED" in shown.stderr
    assert f"{send.id}.50: it has no batch" in shown.stderr


def test_a_send_that_is_none_is_said_in_a_sentence(tidings: Tidings) -> None:
    assert "not the id of a send" in tidings("books", "--send", "nonsense").stderr
    assert "there is no send" in tidings("books", "--send", "0196f000-0000-7000-8000-000000000000").stderr


def test_importing_the_commands_loads_neither_store_nor_web_framework() -> None:
    code = "import sys, admin.cli.command; sys.exit(bool({'psycopg', 'redis', 'flask'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[3]
    assert subprocess.run([root / ".venv" / "bin" / "python", "-c", code], cwd=root, check=False).returncode == 0
