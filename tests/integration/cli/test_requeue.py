"""The operators' commands: requeue, operation, provider and audit, as somebody types them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

from admin.cli.command import main
from admin.cli.requeue import Since
from shared.domain.states import SendStatus
from shared.ledger import providers
from shared.ledger.db import Ledger
from tests.support.factories import MadeSend, counts, make_send
from tests.support.ledger_rows import delivery, put_rows, scalar
from tests.support.requeuing import finish

Tidings = Callable[..., Result]


@pytest.fixture
def tidings(database_url: str, redis_url: str) -> Tidings:
    def run(*words: str, stdin: str | None = None, **environment: str) -> Result:
        stores = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "TIDINGS_OPERATOR": "kim"}
        return CliRunner().invoke(main, words, input=stdin, env={**stores, **environment})

    return run


def dead(ledger: Ledger, count: int = 3, status: str = "dead_lettered") -> MadeSend:
    send = make_send(ledger, count=count, status=SendStatus.SENDING)
    put_rows(ledger, send.id, range(1, count + 1), status)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET first_attempt_at = now()")
    return send


def test_a_requeue_is_shown_asked_for_done_and_written_down(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger)
    result = tidings("requeue", "--send", str(send.id), "--reason", "the relay is back", "--now", stdin="y\n")
    assert result.exit_code == 0, result.output
    assert f"Requeue all dead-lettered or failed deliveries of send {send.id}:" in result.output
    assert re.search(r"acme +email +dead_lettered +3\n3 would be requeued", result.output)
    operation_id = re.findall(r"^[0-9a-f-]{36}$", result.output, re.MULTILINE)[0]
    finish(ledger)
    shown = tidings("operation", "show", operation_id).stdout
    assert "done: 3 of 3 requeued, 0 skipped, 0 left" in shown
    assert "by kim at " in shown
    assert "because: the relay is back" in shown
    assert "now owed: 3" in shown
    assert operation_id in tidings("operation", "list").stdout
    told = tidings("audit").stdout
    assert re.search(r"kim +requeue +operation \S+ +3 +planned +the relay is back", told)
    assert re.search(r"kim +requeue done +operation \S+ +3 +done: 3 requeued, 0 skipped", told)
    assert "@" not in told


def test_a_discard_needs_a_reason_and_a_restore_takes_it_back(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger)
    assert "say why: --reason is needed" in tidings("operation", "discard", "--send", str(send.id)).stderr
    result = tidings("operation", "discard", "--send", str(send.id), "--reason", "a test list", "--now", stdin="y\n")
    assert "3 would be discarded." in result.output
    finish(ledger)
    assert "3 left out: discarded." in tidings("requeue", "--send", str(send.id), "--dry-run").output
    shown = tidings("books", "--send", str(send.id)).stdout
    assert re.search(r"dead lettered +discarded", shown)
    assert re.search(r"email +live +3 +0 +0 +0 +3 ", shown)
    assert tidings("operation", "restore", "--send", str(send.id), "--now", stdin="y\n").exit_code == 0
    finish(ledger)
    assert "3 would be requeued." in tidings("requeue", "--send", str(send.id), "--dry-run").output
    assert re.search(r"discard +done +kim", tidings("operation", "list").stdout)


def test_a_dry_run_and_a_no_change_nothing(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger)
    assert tidings("requeue", "--status", "dead_lettered", "--dry-run").exit_code == 0
    refused = tidings("requeue", f"{send.id}.1", stdin="n\n")
    assert refused.exit_code == 1
    assert "nothing was done" in refused.stderr
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0


def test_it_is_taken_back_within_ten_seconds_and_not_after(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger)
    began = tidings("requeue", "--send", str(send.id), "--yes")
    operation_id = began.stdout.splitlines()[-1]
    assert f"Begins in 10 s. Take it back: tidings operation undo {operation_id}" in began.stderr
    assert "Undone" in tidings("operation", "undo", operation_id).stdout
    assert "it is over: undone" in tidings("operation", "undo", operation_id).stderr
    assert counts(ledger, send.id) == {"dead_lettered": 3}
    second = tidings("requeue", "--send", str(send.id), "--yes").stdout.splitlines()[-1]
    stopped = tidings("operation", "stop", second, "--reason", "wrong send")
    assert "Stopped: 0 were requeued, 3 stay as they were." in stopped.stdout
    assert "stopped by kim: wrong send" in tidings("operation", "show", second).stdout


def test_ids_come_from_the_line_and_from_a_file(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger, 5)
    lines = f"{send.id}.2\n\n{send.id}.2\n{send.id}.4\n{send.id}.99\n"
    result = tidings("requeue", f"{send.id}.1", "--ids", "-", "--yes", "--now", stdin=lines)
    assert result.exit_code == 0, result.output
    assert "1 left out: no such delivery, or retention is removing it." in result.output
    finish(ledger)
    assert {n for n in range(1, 6) if delivery(ledger, send.id, n)["status"] == "owed"} == {1, 2, 4}


def test_unsure_ones_are_taken_only_by_somebody_who_says_so(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger, 1, "unsure")
    assert "--accept-duplicates says that this is known" in tidings("requeue", "--status", "unsure").stderr
    left = tidings("requeue", f"{send.id}.1", "--yes")
    assert left.exit_code == 1
    assert "1 left out: may have been sent already" in left.output
    asked = tidings("requeue", f"{send.id}.1", "--accept-duplicates", "--now", stdin="y\n")
    assert "may have been sent already, and are then received twice" in asked.output
    finish(ledger)
    assert delivery(ledger, send.id)["status"] == "owed"


def test_a_thousand_are_typed_and_a_hundred_need_a_reason(tidings: Tidings, ledger: Ledger) -> None:
    send = dead(ledger, 1_001)
    assert "say why" in tidings("requeue", "--send", str(send.id)).stderr
    words = ("requeue", "--send", str(send.id), "--reason", "r")
    assert tidings(*words, stdin="y\n").exit_code == 1
    assert tidings(*words, stdin="1001\n").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say which"),
        (("not-an-id",), "is not the id of a delivery"),
        (("01a2163a-6f0e-7b32-8c1d-0a5b1c2d3e4f.1", "--tenant", "x"), "not both"),
        (("--status", "sent"), "--status is a list of"),
        (("--send", "x"), "is not the id of a send"),
        (("--since", "yesterday"), "2027-03-28T09:00"),
    ],
)
def test_wrong_usage_is_told(tidings: Tidings, words: tuple[str, ...], said: str) -> None:
    result = tidings("requeue", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_while_ago_is_a_moment() -> None:
    moment = Since().convert("24h", None, None)
    assert 86_390 < (datetime.now(UTC) - moment).total_seconds() < 86_410


def test_a_held_provider_is_shown_with_who_and_why_until_it_is_released(tidings: Tidings, ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        providers.note_accepted(connection, provider="ches", credential="0123456789ab")
    assert re.search(r"^ches:0123456789ab +closed ", tidings("provider", "list").stdout, re.MULTILINE)
    assert "ches:0123456789ab: held" in tidings("provider", "hold", "ches", "--reason", "they asked us to").stdout
    assert "held already" in tidings("provider", "hold", "ches", "--reason", "they asked us to").stdout
    listed = tidings("provider", "list", EMAIL_PROVIDER="sandbox").stdout
    assert re.search(r"^ches:0123456789ab +held .* kim: they asked us to$", listed, re.MULTILINE)
    assert re.search(r"^sandbox:sandbox +closed ", listed, re.MULTILINE)
    assert ": released" in tidings("provider", "release", "ches:0123456789ab").stdout
    assert ": was not held" in tidings("provider", "release", "ches").stdout
    assert "no provider smoke is configured" in tidings("provider", "hold", "smoke", "--reason", "r").stderr
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE action IN ('hold', 'release')") == 4


def test_without_redis_a_hold_is_kept_all_the_same_and_says_what_comes_later(tidings: Tidings, ledger: Ledger) -> None:
    result = tidings("provider", "hold", "sandbox", "--reason", "r", REDIS_URL="redis://127.0.0.1:1")
    assert result.exit_code == 0
    assert "Redis does not answer: its circuit shows it once it does" in result.stdout
    assert scalar(ledger, "SELECT count(*) FROM provider_hold") == 1
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE action = 'hold'") == 1


def test_an_address_in_a_reason_is_masked_wherever_the_reason_is_kept(tidings: Tidings, ledger: Ledger) -> None:
    why = "jane.doe@example.com asked"
    first, second = dead(ledger), dead(ledger)
    for words in (
        ("queue", "pause", "email_bulk"),
        ("provider", "hold", "sandbox"),
        ("requeue", "--send", str(first.id), "--yes"),
        ("operation", "discard", "--send", str(second.id), "--yes"),
    ):
        result = tidings(*words, "--reason", why)
        assert result.exit_code == 0, result.output
    stopped = str(scalar(ledger, "SELECT id::text FROM operation WHERE kind = 'discard'"))
    assert tidings("operation", "stop", stopped, "--reason", why).exit_code == 0
    assert scalar(ledger, "SELECT reason FROM queue_pause") == "j***@e***.com asked"
    assert scalar(ledger, "SELECT reason FROM provider_hold") == "j***@e***.com asked"
    assert scalar(ledger, "SELECT count(*) FROM operation WHERE reason = 'j***@e***.com asked'") == 2
    assert scalar(ledger, "SELECT why FROM operation WHERE id::text = %s", stopped) == (
        "stopped by kim: j***@e***.com asked"
    )
    for words in (("queue", "list"), ("provider", "list"), ("operation", "list"), ("operation", "show", stopped)):
        assert "jane.doe" not in tidings(*words).output
