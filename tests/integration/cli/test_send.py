import io
import json
import re
import signal
from datetime import datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from click.testing import CliRunner

from admin.cli import api_client, main
from admin.cli.api_client import ApiClient, Refusal
from tests.integration.cli.conftest import Install, Installation
from tests.support.scripted_http import RESET, answer, scripted_http
from tests.support.scripted_smtp import scripted_smtp
from tests.support.waiting import wait_until

PEOPLE = "E-Mail;First Name;reference\r\nada@example.com;Ada;a-1\r\n\r\ngrace@example.com;Grace;g-1\r\n"
WORDS = ("--subject", "Hello {{ first_name }}", "--text", "Hi {{ first_name }}")


def _id_in(text: str) -> str:
    found = re.search(r"send ([0-9a-f-]{36})", text, re.IGNORECASE)
    assert found
    return found[1]


def _count(installation: Installation, table: str) -> int:
    with installation.ledger.transaction() as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_a_csv_is_sent_and_its_books_are_shown(installation: Installation) -> None:
    installation.work()
    result = installation.tidings("send", "--csv", "-", *WORDS, "--name", "Spring", stdin=PEOPLE)

    assert result.exit_code == 0, result.output
    assert "Accepted 2 as send" in result.stderr
    assert re.search(r"e-mail +2 +2 +0", result.stdout)
    shown = installation.tidings("show", _id_in(result.stderr), "--deliveries")
    assert "“Spring”" in shown.stdout
    assert [line.split("\t")[1:] for line in shown.stdout.splitlines()[-2:]] == [
        ["sent", "ada@example.com", "1", "", "a-1", ""],
        ["sent", "grace@example.com", "1", "", "g-1", ""],
    ]
    listed = installation.tidings("list").stdout
    assert "completed" in listed
    assert "Spring" in listed


def test_a_list_of_a_thousand_reaches_a_relay_whole_and_each_once(install: Install) -> None:
    people = {f"person{number}@example.com": f"Nº {number}" for number in range(1, 1_001)}
    rows = "".join(f'{address},"{name}"\r\n' for address, name in people.items())
    with scripted_smtp() as relay:
        installation = install(
            EMAIL_PROVIDER="smtp", SMTP_HOST="127.0.0.1", SMTP_PORT=str(relay.port), SMTP_SECURITY="none"
        )
        installation.work()
        result = installation.tidings("send", "--csv", "-", *WORDS, stdin=f"\ufeffEmail,First Name\r\n{rows}")
    assert result.exit_code == 0, result.output
    assert re.search(r"e-mail +1,000 +1,000 +0", result.stdout)
    mails = [(taken.recipient, message_from_bytes(taken.content, policy=default)) for taken in relay.taken]
    read = {to: (mail["To"], mail["Subject"], mail.get_content().strip()) for to, mail in mails}
    assert len(mails) == 1_000
    assert read == {to: (to, f"Hello {name}", f"Hi {name}") for to, name in people.items()}


def test_the_same_people_can_be_told_by_sms(installation: Installation) -> None:
    installation.work()
    result = installation.tidings(
        "send", "--csv", "-", "--sms", "--from", "+16045550100", "--text", "Hi {{ name }}",
        stdin="Phone\tName\n604-555-0123\tAda\n+1 604 555 0124\tGrace\n",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert re.search(r"SMS +2 +2 +0", result.stdout)
    assert "2 SMS segments" in result.output
    shown = installation.tidings("show", _id_in(result.stderr), "--deliveries")
    assert [line.split("\t")[4] for line in shown.stdout.splitlines()[-2:]] == ["1", "1"]


def test_every_fault_is_told_at_once_by_its_row_and_nothing_is_stored(installation: Installation) -> None:
    result = installation.tidings(
        "send", "--csv", "-", "--subject", "Hello {{ name }}", "--text", "x",
        stdin="email,name\nada@example.com,Ada\nnot-an-address,B\n\n,C\ngrace@example.com,\n",
    )  # fmt: skip

    assert result.exit_code == 1
    assert [line.split(":")[0].strip() for line in result.stderr.splitlines()] == [
        "row 3, to",
        "row 5, column A (email)",
        "row 6, params",
        "Error",
    ]
    assert _count(installation, "send") == 0


def test_bad_rows_are_left_aside_when_asked(installation: Installation) -> None:
    installation.work()
    result = installation.tidings(
        "send", "--csv", "-", "--subject", "Hello", "--text", "x", "--on-invalid", "skip",
        stdin="email,name\nada@example.com,Ada\nnot-an-address,B\n,C\n",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert "row 4, column A (email): has no address\nThese rows are left out.\n" in result.stderr
    assert "1 bad row stored as failed" in result.stderr
    send_id = _id_in(result.stderr)
    assert "  row 3, to: is not an e-mail address" in result.stderr
    assert f"  List them with: tidings show {send_id} --status failed\n" in result.stderr
    assert re.search(r"e-mail +2 +1 +1 +0", result.stdout)


def test_bad_rows_are_told_by_their_ids_where_dropped_duplicates_moved_them(installation: Installation) -> None:
    result = installation.tidings(
        "send", "--csv", "-", "--subject", "Hello", "--text", "x", "--on-invalid", "skip", "--no-wait",
        stdin="email\nada@example.com\nada@example.com\nnot-an-address\n",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert f"  delivery {_id_in(result.stderr)}.2, to: is not an e-mail address" in result.stderr


def test_a_scheduled_send_is_not_waited_for_and_can_be_stopped(installation: Installation) -> None:
    day = (datetime.now().astimezone() + timedelta(days=300)).date()
    result = installation.tidings("send", "--csv", "-", *WORDS, "--at", f"{day}T09:00", stdin=PEOPLE)

    assert result.exit_code == 0, result.output
    send_id = result.stdout.strip()
    assert f"tidings show {send_id}" in result.stderr
    assert f"to begin {day} 09:00:00" in installation.tidings("show", send_id).stdout
    assert "paused" in installation.tidings("pause", send_id).stdout
    assert installation.tidings("resume", send_id).exit_code == 0
    assert re.search(r"e-mail +2 +0 +2 +0", installation.tidings("cancel", send_id).stdout)
    repeated = installation.tidings("show", send_id, "--json")
    assert json.loads(repeated.stdout)["status"] == "cancelled"


def test_one_delivery_is_shown_with_its_attempts(installation: Installation) -> None:
    installation.work()
    send_id = _id_in(installation.tidings("send", "--csv", "-", *WORDS, stdin=PEOPLE).stderr)
    delivery = json.loads(installation.tidings("show", f"{send_id}.1").stdout)

    assert (delivery["reference"], delivery["status"], len(delivery["attempts"])) == ("a-1", "sent", 1)


def test_ctrl_c_ends_the_waiting_and_not_the_send(installation: Installation, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text(PEOPLE)
    waiting = installation.background("send", "--csv", str(people), *WORDS, "--yes")
    wait_until(lambda: "Accepted 2" in waiting.output(), what="the acceptance")
    wait_until(lambda: _count(installation, "send") == 1, what="the send")
    waiting.signal(signal.SIGINT)

    assert waiting.wait() == 130
    assert "The send goes on. Look at it with: tidings show" in waiting.output()
    assert "Traceback" not in waiting.output()
    installation.work()
    shown = installation.tidings("show", _id_in(waiting.output()), "--watch")
    assert re.search(r"e-mail +2 +2 +0", shown.stdout)


def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_accepted_once(installation: Installation) -> None:
    first = installation.tidings("send", "--csv", "-", *WORDS, "--no-wait", "--idempotency-key", "k-1", stdin=PEOPLE)
    again = installation.tidings("send", "--csv", "-", *WORDS, "--no-wait", "--idempotency-key", "k-1", stdin=PEOPLE)

    assert first.exit_code == again.exit_code == 0, first.output
    assert first.stdout == again.stdout
    assert "handed in before" not in first.stderr
    assert "handed in before under the same Idempotency-Key: it is the same send" in again.stderr
    assert _count(installation, "send") == 1


def test_a_submission_cut_off_is_repeated_with_its_idempotency_key() -> None:
    with scripted_http() as server:
        server.once("/api/v1/sends", (RESET,))
        server.always("/api/v1/sends", answer(202, {"id": "x"}))
        accepted = ApiClient(server.url, "k").submit(io.BytesIO(b"{}"), 2, key="key-7")

        assert accepted == {"id": "x"}
        received = server.posts("/api/v1/sends")
        assert [request.headers["idempotency-key"] for request in received] == ["key-7", "key-7"]
        assert [request.body for request in received] == [b"{}", b"{}"]


def test_a_key_that_is_busy_is_asked_for_until_the_first_submission_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "_WAITS_S", (0.01, 0.01))
    busy = answer(409, {"type": "/api/v1/docs#idempotency-key-busy", "detail": "still running"})
    with scripted_http() as server:
        server.once("/api/v1/sends", (RESET,), *[busy] * 5)
        server.always("/api/v1/sends", answer(202, {"id": "x"}))
        assert ApiClient(server.url, "k").submit(io.BytesIO(b"{}"), 2, key="key-7") == {"id": "x"}

        server.always("/api/v1/sends", busy)
        monkeypatch.setattr(api_client, "_BUSY_S", 0.0)
        with pytest.raises(Refusal, match="still running"):
            ApiClient(server.url, "k").submit(io.BytesIO(b"{}"), 2, key="key-7")


@pytest.mark.parametrize(
    ("status", "problem", "says"),
    [
        (409, {"type": "/api/v1/docs#idempotency-key-busy", "detail": "Still running."}, "Still running. It may"),
        (500, {"detail": "Something went wrong."}, "Something went wrong. It may"),
        (504, {}, "the server answered 504. It may"),  # a proxy's patience ended; the submission goes on behind it
    ],
)
def test_an_answer_that_decides_nothing_is_told_with_the_key_to_repeat_under(
    status: int, problem: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "_WAITS_S", (0.01,))
    monkeypatch.setattr(api_client, "_BUSY_S", 0.0)
    with scripted_http() as server:
        server.once("/api/v1/sends", answer(200, {"sends": []}))
        server.always("/api/v1/sends", answer(status, problem))
        words = ["send", "--csv", "-", *WORDS, "--url", server.url, "--key", "k"]
        result = CliRunner().invoke(main, words, input=PEOPLE)
        keys = {request.headers.get("idempotency-key") for request in server.posts("/api/v1/sends")} - {None}

    assert result.exit_code == 1
    assert says in result.stderr
    assert f"--idempotency-key {keys.pop()}" in result.stderr


def test_a_wrong_key_is_told_before_the_file_is_read(installation: Installation) -> None:
    result = installation.tidings("send", "--csv", "-", *WORDS, stdin="not a csv", TIDINGS_API_KEY="tid_live_wrong")

    assert result.exit_code == 1
    assert "not a Tidings API key" in result.stderr
    assert "tid_live_wrong" not in result.output
