"""Nothing from outside moves the cursor or forges a line, whatever command prints it."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from admin.cli.books import summary
from admin.cli.command import main
from admin.cli.fault import CommandError
from admin.cli.screen import say, say_json
from admin.cli.table import as_table
from tests.support.scripted_http import answer, scripted_http

EVIL = "Ada\x1b[2J\nforged\a"
SHOWN = r"Ada\x1b[2J\nforged\x07"
SEND_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
CLI = Path(__file__).resolve().parents[3] / "admin" / "cli"


def _books(**given: int) -> dict[str, int]:
    names = "accepted sent failed dead_lettered suppressed cancelled expired unsure owed unaccounted"
    return {**dict.fromkeys(names.split(), 0), **given}


def _send() -> dict[str, Any]:
    return {
        "id": SEND_ID, "name": EVIL, "status": "paused", "pause_reason": EVIL, "mode": "live", "segments": None,
        "created_at": "2026-11-30T16:12:29Z", "duplicates": {"email": 0},
        "books": {"email": _books(accepted=1, owed=1)},
    }  # fmt: skip


def test_everything_is_printed_by_the_one_function() -> None:
    for path in CLI.glob("*.py"):
        if path.name != "screen.py":
            text = path.read_text()
            assert not any(word in text for word in ("click.echo(", "click.secho(", "print(")), path.name


def test_a_table_and_a_summary_keep_their_lines() -> None:
    assert as_table(("name",), [(EVIL,)]).splitlines() == ["name", SHOWN]
    text = summary(_send())
    assert f"“{SHOWN}”" in text
    assert f"paused: {SHOWN}" in text
    assert "forged" not in [line[:6] for line in text.splitlines()]


def test_lines_and_the_tabs_between_cells_are_left_and_controls_are_shown() -> None:
    @click.command()
    def command() -> None:
        say("a\tb\nc\x1b[31m\r")
        raise CommandError("no\x1b[31m\asuch\nhost")

    result = CliRunner().invoke(command)
    assert result.stdout == "a\tb\nc\\x1b[31m\\r\n"
    assert result.stderr == "Error: no\\x1b[31m\\x07such\nhost\n"


def test_json_stays_json_and_is_harmless() -> None:
    @click.command()
    def command() -> None:
        say_json({"name": f"{EVIL}\x7f\x9b\u202e"})

    output = CliRunner().invoke(command).output
    assert json.loads(output) == {"name": f"{EVIL}\x7f\x9b\u202e"}
    assert all(" " <= character <= "~" for character in output.rstrip("\n"))


def test_what_the_api_says_is_shown_harmless_in_show_and_in_an_error() -> None:
    delivery = {
        "id": f"{SEND_ID}.1", "status": "failed", "to": EVIL, "attempt_count": 1, "last_error": EVIL, "segments": None,
        "reference": EVIL,
    }  # fmt: skip
    with scripted_http() as server:
        environment = {"TIDINGS_URL": server.url, "TIDINGS_API_KEY": "k"}
        server.always(f"/api/v1/sends/{SEND_ID}", answer(200, _send()))
        server.always(
            f"/api/v1/sends/{SEND_ID}/deliveries", answer(200, {"deliveries": [delivery], "next_cursor": None})
        )
        shown = CliRunner().invoke(main, ["show", SEND_ID, "--deliveries"], env=environment)
        server.always(f"/api/v1/sends/{SEND_ID}/cancel", answer(409, {"detail": EVIL}))
        refused = CliRunner().invoke(main, ["cancel", SEND_ID], env=environment)

    assert shown.exit_code == 0, shown.output
    assert not {"\x1b", "\a"} & set(shown.output + refused.output)
    last = shown.stdout.splitlines()[-1].split("\t")
    assert last[:4] == [f"{SEND_ID}.1", "failed", SHOWN, "1"]
    assert refused.stderr == f"Error: {SHOWN}\n"


@pytest.mark.parametrize("bad", ["", " ", "x", "../tenants", f"{SEND_ID}\nx", f"{SEND_ID}.", f"{SEND_ID}.x", "\x1b[2J"])
@pytest.mark.parametrize(
    "words",
    [
        ("show",), ("show", "--deliveries"), ("cancel",), ("pause",), ("resume",), ("books", "--send"),
        ("requeue", "--send"), ("requeue",), ("operation", "show"), ("operation", "stop"), ("operation", "undo"),
        ("key", "revoke"),
    ],
)  # fmt: skip
def test_a_wrong_or_empty_id_is_wrong_usage_before_anything_is_asked(words: tuple[str, ...], bad: str) -> None:
    nowhere = {
        "TIDINGS_URL": "http://127.0.0.1:1", "TIDINGS_API_KEY": "k",
        "DATABASE_URL": "postgresql://127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:1",
    }  # fmt: skip
    result = CliRunner().invoke(
        main, [*words, "--", bad] if not words[-1].endswith("send") else [*words, bad], env=nowhere
    )

    assert result.exit_code == 2, result.output
    assert "Invalid value" in result.stderr
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("requeue", "--send", SEND_ID, "--signature", ""), "--signature is empty"),
        (("requeue", "--tenant", "", "--status", "failed"), "--tenant is empty"),
        (("requeue", "--status", ""), "--status is empty"),
        (
            ("send", "--csv", "-", "--subject", "x", "--text", "y", "--idempotency-key", ""),
            "--idempotency-key is 1 to 255",
        ),
    ],
)
def test_an_option_from_a_variable_that_was_never_set_is_not_taken_for_none(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, words, env={"TIDINGS_URL": "http://127.0.0.1:1", "TIDINGS_API_KEY": "k"})

    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("url", "key", "said"),
    [("http://127.0.0.1:x", "k", "must look like"), ("http://127.0.0.1:1", "tid_live_x\nEvil: 1", "the API key has")],
)
def test_an_address_or_a_key_that_is_none_is_a_sentence(url: str, key: str, said: str) -> None:
    result = CliRunner().invoke(main, ["list"], env={"TIDINGS_URL": url, "TIDINGS_API_KEY": key})

    assert result.exit_code == 1
    assert said in result.stderr
