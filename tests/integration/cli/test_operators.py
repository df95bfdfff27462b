import json
import re
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from click.testing import CliRunner, Result

from admin.cli.command import main
from shared.ledger.db import Ledger
from shared.ledger.tenants import authenticate
from tests.integration.cli.conftest import SECRET_KEY, Install, Installation
from tests.support.processes import answers


@pytest.fixture
def tidings(database_url: str, redis_url: str):  # type: ignore[no-untyped-def]  # a plain function
    def run(*words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, words, input=stdin, env={"DATABASE_URL": database_url, "REDIS_URL": redis_url})

    return run


def test_a_key_is_shown_once_works_and_is_gone_after_revocation(tidings, ledger: Ledger) -> None:  # type: ignore[no-untyped-def]
    assert tidings("tenant", "create", "City of Example", "--region", "ca").exit_code == 0
    made = tidings("key", "create", "City of Example", "--test", "--name", "first")
    secret = made.stdout.strip()

    with ledger.transaction() as connection:
        caller = authenticate(connection, secret)
    assert caller is not None
    assert (caller.tenant_name, caller.mode.value, caller.default_region) == ("City of Example", "test", "CA")
    listed = tidings("key", "list", "City of Example").stdout
    assert "first" in listed
    assert secret not in listed
    assert tidings("key", "revoke", str(caller.key_id)).exit_code == 0
    with ledger.transaction() as connection:
        assert authenticate(connection, secret) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tenant", "create", ""), "a name has 1 to 200"),
        (("tenant", "create", "new", "--region", "Canada"), "two capital letters"),
        (("tenant", "create", "taken"), "already a tenant named taken"),
        (("key", "create", "nobody"), "no tenant named nobody"),
        (("key", "list", "nobody"), "no tenant named nobody"),
        (("key", "revoke", "99"), "no key 99"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tidings, words: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    tidings("tenant", "create", "taken")
    result = tidings(*words)

    assert result.exit_code == 1
    assert said in result.stderr


def test_addresses_on_the_suppression_list_are_not_written_to_until_they_are_taken_off(
    installation: Installation, tmp_path: Path
) -> None:
    installation.work()
    listed = tmp_path / "opted-out.txt"
    listed.write_text("ADA@example.com\n\n")

    def books() -> str:
        people = "email\nada@example.com\ngrace@example.com\n"
        return installation.tidings("send", "--csv", "-", "--subject", "x", "--text", "y", stdin=people).stdout

    assert "1 on the list of demo" in installation.tidings("suppression", "add", "demo", str(listed)).stdout
    shown = installation.tidings("suppression", "list", "demo").stdout
    assert shown.startswith("email\ta***@e***.com\t")
    assert re.search(r"e-mail +2 +1 +1 +0", books())
    removed = installation.tidings(
        "suppression", "remove", "demo", stdin="ada@example.com\nnobody@example.com\n"
    ).stdout
    assert "1 taken off the list of demo; 1 were not on it" in removed
    assert re.search(r"e-mail +2 +2 +0", books())


def test_a_list_with_a_line_that_is_no_address_changes_nothing(tidings) -> None:  # type: ignore[no-untyped-def]
    tidings("tenant", "create", "demo", "--region", "CA")
    result = tidings("suppression", "add", "demo", "--sms", stdin="604 555 0123\nsomebody\n")

    assert result.exit_code == 1
    assert "line 2 " in result.stderr
    assert "somebody" not in result.output
    assert tidings("suppression", "list", "demo").stdout == ""


def test_release_migrates_an_empty_database_and_may_be_run_again(empty_database_url: str) -> None:
    def run(*words: str) -> Result:
        environment = {"DATABASE_URL": empty_database_url, "REDIS_URL": "redis://127.0.0.1:1"}
        return CliRunner().invoke(main, words, env=environment)

    before = run("tenant", "list")
    assert before.exit_code == 1
    assert "run `tidings release` first" in before.stderr
    for _ in range(2):
        assert run("release").exit_code == 0
    assert run("tenant", "list").exit_code == 0


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    environment = {"DATABASE_URL": "postgres://me:hidden-word@127.0.0.1:1/db", "REDIS_URL": "redis://127.0.0.1:1"}
    for words in (["tenant", "list"], ["release"]):
        result = CliRunner().invoke(main, words, env=environment)
        assert result.exit_code == 1, result.output
        assert "database" in result.stderr
        assert "hidden-word" not in result.output


def test_a_sign_in_link_opens_the_pages_of_the_running_web_process_once(installation: Installation) -> None:
    link = installation.tidings("admin", "link", "--operator", "kim").stdout.strip()

    assert link.startswith(f"{installation.url}/admin/sign-in/link/")
    assert SECRET_KEY not in link
    browser = build_opener(HTTPCookieProcessor())
    browser.addheaders = [("Accept", "text/html")]
    with browser.open(link, timeout=5) as page:
        assert page.url == f"{installation.url}/admin/monitoring"
        assert "kim" in page.read().decode()
    with browser.open(f"{installation.url}/inbox", timeout=5) as page:
        assert "No messages yet." in page.read().decode()
    assert not answers(f"{installation.url}/inbox")
    assert not answers(link)
    audit = installation.tidings("audit").stdout
    assert [line.split()[3:5] for line in audit.splitlines() if "kim" in line] == [["sign", "in"], ["sign-in", "link"]]


def test_a_link_is_refused_where_it_would_open_nothing(installation: Installation) -> None:
    result = installation.tidings("admin", "link", ADMIN_LINKS="off")

    assert result.exit_code == 1
    assert "ADMIN_LINKS is off" in result.stderr


def test_a_load_test_sends_everybody_once_and_leaves_no_key(install: Install, ledger: Ledger) -> None:
    installation = install(LOADTEST_MODE="true")
    installation.work()
    for channel in ("email", "sms"):
        result = installation.tidings("loadtest", "--recipients", "120", "--rate", "60", "--channel", channel)

        assert result.exit_code == 0, result.output
        line = json.loads(result.stdout)
        assert (line["accepted"], line["sent"], line["duplicates"], line["unaccounted"]) == (120, 120, 0, 0)
        assert 0 < line["p50_ms"] <= line["p95_ms"]
        assert 40 <= line["handed_in_rate"] <= 60
    with ledger.transaction() as connection:
        keys = connection.execute("SELECT mode, revoked_at IS NULL FROM api_key WHERE name = 'load test'").fetchall()
    assert keys == [("test", False)] * 2


def test_without_load_test_mode_it_says_how_to_switch_it_on_and_leaves_no_key(
    installation: Installation, ledger: Ledger
) -> None:
    result = installation.tidings("loadtest", "--recipients", "1")

    assert result.exit_code == 1
    assert "LOADTEST_MODE=true" in result.stderr
    with ledger.transaction() as connection:
        assert connection.execute(
            "SELECT count(*) FROM api_key WHERE name = 'load test' AND revoked_at IS NULL"
        ).fetchone() == (0,)
