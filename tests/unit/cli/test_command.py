from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from admin.cli import connection
from admin.cli.command import main
from admin.cli.made_up import LARGEST_SEND, made_up_send
from admin.cli.send import Moment


@pytest.fixture
def no_local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if `make up` had never run here; gives the place of what it would leave."""
    local = tmp_path / "env"
    monkeypatch.setattr(connection, "LOCAL_ENV", local)
    monkeypatch.setattr("admin.cli.stores.LOCAL_ENV", local)
    return local


def _run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, words, env=environment)


SEND = ("send", "--csv", "-")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SEND, "an e-mail needs --subject"),
        ((*SEND, "--subject", "x"), "--text or --html"),
        ((*SEND, "--sms"), "an SMS needs --text"),
        ((*SEND, "--sms", "--text", "x", "--subject", "y", "--html", "z"), "an SMS has no --subject and no --html"),
        ((*SEND, "--subject", "x", "--text", "@/no/such/file"), "/no/such/file: No such file"),
        ((*SEND, "--subject", "x", "--text", "y", "--at", "tomorrow"), "2027-03-28T09:00"),
        ((*SEND, "--subject", "x", "--text", "y", "--param", "novalue"), "name=value"),
        (("send",), "Missing option '--csv'"),
    ],
)
def test_wrong_usage_says_what_is_right_and_exits_with_2(no_local: Path, words: tuple[str, ...], said: str) -> None:
    result = _run(*words, TIDINGS_URL="http://127.0.0.1:1", TIDINGS_API_KEY="k")

    assert result.exit_code == 2
    assert said in result.stderr


def test_without_an_installation_it_says_what_to_set(no_local: Path) -> None:
    result = _run("list")

    assert result.exit_code == 1
    assert "set TIDINGS_URL and TIDINGS_API_KEY, or run `make up`" in result.stderr


def test_a_server_that_is_away_is_named_and_the_key_is_not(no_local: Path) -> None:
    result = _run("list", TIDINGS_URL="http://127.0.0.1:1", TIDINGS_API_KEY="tid_live_secret")

    assert result.exit_code == 1
    assert "http://127.0.0.1:1 does not answer (Connection refused)" in result.stderr
    assert "secret" not in result.output


def test_what_make_up_left_is_used_when_nothing_else_is_said(no_local: Path) -> None:
    no_local.write_text("TIDINGS_URL=http://127.0.0.1:2\nTIDINGS_API_KEY='a b'\n")

    assert "http://127.0.0.1:2 does not answer" in _run("list").stderr
    assert connection.local_environment()["TIDINGS_API_KEY"] == "a b"


def test_a_key_for_one_place_is_not_sent_to_another(no_local: Path) -> None:
    no_local.write_text("TIDINGS_URL=http://127.0.0.1:2\nTIDINGS_API_KEY=local\n")
    result = _run("list", TIDINGS_URL="http://127.0.0.1:1")

    assert "set TIDINGS_API_KEY" in result.stderr


def test_config_reports_every_fault_at_once_and_never_a_secret(no_local: Path) -> None:
    bad = _run("config", DATABASE_URL="mysql://me:hidden-word@host/db", BATCH_SIZE="0")
    good = _run("config", DATABASE_URL="postgres://me:hidden-word@host/db", REDIS_URL="redis://h", BATCH_SIZE="30")

    assert bad.exit_code == 1
    assert all(
        name in bad.stderr for name in ("DATABASE_URL: needs postgres://", "REDIS_URL: is not set", "BATCH_SIZE")
    )
    assert good.exit_code == 0
    assert "BATCH_SIZE=30   (set)\n" in good.output
    assert "REDIS_NAMESPACE=tidings\n" in good.output
    assert "hidden-word" not in bad.output + good.output


@pytest.mark.parametrize("command", ["release", "config", "books"])
def test_a_database_address_that_is_none_is_a_sentence_without_its_password(no_local: Path, command: str) -> None:
    for url, said in (
        ("postgres://me:hidden-word@h/db?foo=1", 'Postgres understands: invalid URI query parameter: "foo"\n'),
        ("postgres://me:hidden%word@h/db", "is not an address that Postgres understands\n"),
    ):
        result = _run(command, DATABASE_URL=url, REDIS_URL="redis://h")
        assert result.exit_code == 1
        assert said in result.output
        assert "hidden" not in result.output


def test_config_says_where_live_messages_go_and_what_a_chosen_provider_lacks(no_local: Path) -> None:
    result = _run("config", DATABASE_URL="postgres://h/db", REDIS_URL="redis://h", EMAIL_PROVIDER="smtp")

    assert result.exit_code == 0
    assert "Live e-mail goes to smtp at no host yet" in result.stdout
    assert "Live SMS goes nowhere and waits: SMS_PROVIDER is none.\n" in result.stdout
    assert "Warning: smtp takes live e-mail and is not set up: SMTP_HOST is missing." in result.stderr


def test_a_time_without_an_offset_is_this_machines() -> None:
    naive = Moment().convert("2027-03-28T09:00", None, None)

    assert naive == datetime(2027, 3, 28, 9).astimezone()
    assert Moment().convert("2027-03-28T09:00:00+02:00", None, None) == datetime(2027, 3, 28, 7, tzinfo=UTC)


@pytest.mark.parametrize("channel", ["email", "sms"])
def test_made_up_recipients_of_one_send_are_all_different(channel: str) -> None:
    largest = LARGEST_SEND[channel]
    people = made_up_send(channel, first=12_345, count=largest)[channel]["recipients"]

    assert len({one["to"] for one in people}) == largest
