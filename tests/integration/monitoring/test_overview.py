"""The Overview: what is due, how fast it goes, what keeps it, and when it will be over."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from flask import Flask

from admin.extensions import installed
from admin.monitoring.snapshot import build
from shared.accounts import credential_of, provider_name
from shared.coordination.circuit import Admitted, Circuit, Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.gate import Gate
from shared.domain.requeue import FailureFilter, OperationKind
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus
from shared.ledger.db import Ledger
from shared.recovery.waits import Waits
from tests.integration.ledger.hand import Hand, ended
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.factories import make_send
from tests.support.failing import age_failures, make_failures
from tests.support.ledger_rows import put_rows, put_send
from tests.support.requeuing import finish, plan

SENDING = SendStatus.SENDING

T = TypeVar("T")


@pytest.fixture
def app(make_app: MakeApp, redis_url: str) -> Flask:
    return make_app(redis_url=redis_url, email_provider="sandbox", sms_provider="sandbox")


@pytest.fixture
def hand(ledger: Ledger) -> Hand:
    return Hand(ledger)


def sections(app: Flask) -> dict[str, Any]:
    return {name: entry["data"] for name, entry in build(installed(app), None)["sections"].items()}


def channel(app: Flask, name: str = "email", mode: str = "live") -> Any:
    [row] = [row for row in sections(app)["channels"]["channels"] if (row["channel"], row["mode"]) == (name, mode)]
    return row


def counted(
    ledger: Ledger, per_minute: list[int], read: Callable[[], T], *, channel: str = "email", failed: int = 0
) -> T:
    """
    What is read where so many were sent in each of the last full minutes, oldest first.

    Where the minute turns before all is read, it is counted and read anew.
    """
    while True:
        began = count_minutes(ledger, per_minute, channel=channel, failed=failed)
        found = read()
        with ledger.autocommit() as connection:
            if connection.execute("SELECT date_trunc('minute', now())").fetchone() == began:
                return found


def count_minutes(ledger: Ledger, per_minute: list[int], *, channel: str = "email", failed: int = 0) -> Any:
    """Count in the place of what was counted before; the row of the running minute."""
    with ledger.transaction() as connection:
        connection.execute("DELETE FROM minute_count WHERE writer = 1")
        for ago, sent in enumerate(reversed(per_minute), start=1):
            connection.execute(
                "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent, failed)"
                " VALUES (date_trunc('minute', now()) - %s * interval '1 minute', 1, 'live', %s, 'ches', 12, %s, %s)",
                [ago, channel, sent, failed],
            )
        return connection.execute("SELECT date_trunc('minute', now())").fetchone()


def test_rows_stay_when_nothing_is_due(app: Flask) -> None:
    text = text_of(Browser(app).get("/admin/monitoring"))
    assert "E-mail nothing due" in text
    assert "SMS nothing due" in text
    assert "Nothing is in progress." in text
    assert "No digest channels." in text


def test_what_is_due_is_told_from_what_waits_for_its_time(app: Flask, ledger: Ledger) -> None:
    going = make_send(ledger, count=100, status=SENDING, age="9 minutes")
    put_rows(ledger, going.id, range(1, 26), "sent")
    put_rows(ledger, going.id, range(26, 51), "retrying", due_in="20 minutes")
    put_send(ledger, make_send(ledger, count=7).id, SendStatus.PAUSED)
    soon = make_send(ledger, count=11, send_at="30 minutes")
    put_send(ledger, soon.id, SendStatus.SCHEDULED)
    put_send(ledger, make_send(ledger, count=13, send_at="3 hours").id, SendStatus.SCHEDULED)
    row = channel(app)
    assert (row["due"], row["later"], row["paused"], row["scheduled"]) == (50, 25, 7, 24)
    assert row["next_hour"] == 25 + 11
    assert row["owed"] == 75 + 7 + 24
    assert row["held_back"] == []


def test_the_age_of_work_counts_from_when_it_may_go(app: Flask, ledger: Ledger) -> None:
    send = make_send(ledger, count=5, status=SENDING, age="3 hours", send_at="-2 minutes")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '3 hours'")
        connection.execute("UPDATE send SET started_at = send_at")
        row = connection.execute("SELECT send_at FROM send WHERE id = %s", [send.id]).fetchone()
    assert row is not None
    assert channel(app)["oldest_due_at"] == row[0].isoformat(timespec="seconds")


def test_a_provider_that_is_told_to_wait_for_holds_its_work_back(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=40, status=SENDING, age="10 minutes")
    close_gate(app, "email")
    row = channel(app)
    assert (row["due"], row["oldest_due_at"]) == (0, None)
    assert row["held_back"] == [{"why": "the provider told us to slow down", "count": 40}]
    assert row["circuit"] == {"word": "told to slow down", "kind": "warn"}
    assert row["clears"] == {"seconds": None, "words": "the provider told us to slow down"}
    [send] = sections(app)["sends"]["sends"]
    assert send["state"]["word"] == "waiting for provider"
    assert send["time_left"]["words"] == "the provider told us to slow down"
    text = text_of(Browser(app).get("/admin/monitoring"))
    assert "E-mail none may go" in text
    assert "SMS nothing due" in text
    [in_progress] = re.findall("Sends in progress (?:(?! Sends in progress ).)*$", text)
    assert in_progress.count("the provider told us to slow down") == 1


def test_a_provider_that_is_being_tried_still_holds_its_work_back(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=40, status=SENDING, age="10 minutes")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '10 minutes'")
    services = installed(app)
    circuit = Circuit(
        services.link,
        provider="sandbox",
        credential=credential_of(services.settings, "sandbox"),
        policy=CircuitPolicy(failures=1, open_s=0.0, probe_lease_s=600.0),
        namespace=services.settings.redis_namespace,
    )
    permit = circuit.admit()
    assert isinstance(permit, Admitted)
    circuit.report(permit, failures=1)
    assert isinstance(circuit.admit(), Probe)
    row = channel(app)
    assert row["circuit"] == {"word": "open", "kind": "bad"}
    assert (row["due"], row["oldest_due_at"]) == (0, None)
    assert row["held_back"] == [{"why": "circuit open", "count": 40}]
    [send] = sections(app)["sends"]["sends"]
    assert (send["state"]["word"], send["time_left"]["words"]) == ("waiting for provider", "circuit open")
    assert not Waits(services.link, services.settings).held_back(Channel.EMAIL, Mode.LIVE), "the probe must find work"


def close_gate(app: Flask, channel: str) -> None:
    services = installed(app)
    name = provider_name(services.settings, Channel(channel), Mode.LIVE)
    gate = Gate(
        services.link,
        provider=name,
        credential=credential_of(services.settings, name),
        namespace=services.settings.redis_namespace,
    )
    gate.close(60.0)


def test_a_paused_queue_holds_back_its_own_lane(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=40, status=SENDING)
    make_send(ledger, count=2, status=SENDING, lane=Lane.SINGLE)
    with ledger.autocommit() as connection:
        connection.execute("INSERT INTO queue_pause (queue, operator, reason) VALUES ('email_bulk', 'kim', 'trial')")
    row = channel(app)
    assert row["due"] == 2
    assert row["held_back"] == [{"why": "the queue is paused", "count": 40}]


def test_the_time_left_comes_from_the_sustained_rate(app: Flask, ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=1_500, status=SENDING, batch_size=100)
    hand.take(send, limit=10)
    data = counted(ledger, [0, 30, 58, 60, 600, 62], lambda: sections(app))
    [row] = [row for row in data["channels"]["channels"] if row["channel"] == "email"]
    assert (row["per_minute"], row["sustained"]) == (62, 60)
    assert row["clears"]["words"] == "about 25 min"
    [shown] = data["sends"]["sends"]
    assert shown["state"] == {"word": "sending", "kind": "busy", "note": None, "at": None}
    assert shown["time_left"]["words"] == "about 25 min"
    assert (shown["left"], shown["percent"], shown["per_minute"]) == (1_500, 0, 60)


def test_without_data_or_with_a_rate_of_nothing_there_is_no_number(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=100, status=SENDING, age="5 seconds")
    assert channel(app)["clears"] == {"seconds": None, "words": "nothing was sent in the last 5 min"}
    clears = counted(ledger, [12], lambda: channel(app)["clears"])
    assert clears == {"seconds": None, "words": "measuring the rate"}


def test_sends_of_a_channel_share_its_rate_and_the_longest_comes_first(app: Flask, ledger: Ledger) -> None:
    small, large = (make_send(ledger, count=count, status=SENDING, batch_size=100) for count in (300, 2_700))
    for send in (small, large):
        Hand(ledger).take(send, limit=1)
    first, second = counted(ledger, [60] * 5, lambda: sections(app)["sends"]["sends"])
    assert (first["id"], first["time_left"]["words"]) == (str(large.id), "about 50 min")
    # Taking turns, the small one is over when as much of the large one is: 600 at 60 a minute.
    assert (second["id"], second["time_left"]["words"]) == (str(small.id), "about 10 min")
    assert first["per_minute"] == second["per_minute"] == 30


@pytest.mark.parametrize(("status", "word"), [(SendStatus.PAUSED, "paused"), (SendStatus.SCHEDULED, "scheduled")])
def test_a_send_that_a_person_or_its_time_keeps_says_so(
    app: Flask, ledger: Ledger, status: SendStatus, word: str
) -> None:
    send = make_send(ledger, count=3, send_at="1 hour" if status is SendStatus.SCHEDULED else None)
    put_send(ledger, send.id, status)
    [shown] = sections(app)["sends"]["sends"]
    assert shown["state"]["word"] == word
    assert (shown["state"]["at"] is not None) is (word == "scheduled")


def test_a_send_without_a_worker_says_so_and_one_that_has_just_come_due_does_not(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=3, status=SENDING, age="5 minutes")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '5 minutes'")
        assert state_of(app) == "waiting for a worker"
        connection.execute("UPDATE batch SET due_at = now()")
        connection.execute("UPDATE send SET started_at = now()")
    assert state_of(app) == "sending"


def test_a_send_whose_turn_is_to_come_goes_on_and_is_without_a_worker_once_the_others_are(
    app: Flask, ledger: Ledger
) -> None:
    small, large = (make_send(ledger, count=count, status=SENDING, age="5 minutes") for count in (3, 300))
    hand = Hand(ledger).register()
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '5 minutes'")
        connection.execute(
            "INSERT INTO chain (send_id, channel, chain_no, token, holder, started_at)"
            " VALUES (%s, 'email', 0, gen_random_uuid(), %s, now())",
            [large.id, hand.worker],
        )

    def words() -> list[str]:
        on_its_page = text_of(Browser(app).get(f"/admin/monitoring/sends/{small.id}"))
        of_small = "waiting for a worker" if "waiting for a worker" in on_its_page else "sending"
        return [*(send["state"]["word"] for send in sections(app)["sends"]["sends"]), of_small]

    assert words() == ["sending", "sending", "sending"]
    hand.die()
    assert words() == ["waiting for a worker"] * 3


def test_nobody_at_work_is_no_rate_and_no_time_left(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=300, status=SENDING, age="5 minutes")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '5 minutes'")
    data = counted(ledger, [60] * 5, lambda: sections(app))
    [send] = data["sends"]["sends"]
    assert send["state"]["word"] == "waiting for a worker"
    assert (send["per_minute"], send["time_left"]) == (None, {"seconds": None, "words": "no worker"})
    email, sms = data["channels"]["channels"]
    assert (email["clears"]["words"], sms["clears"]["words"]) == ("no worker", "nothing due")


def test_what_a_paused_queue_holds_is_in_no_time_left_of_the_other_lane(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=6_000, status=SENDING, batch_size=100)
    single = make_send(ledger, count=120, status=SENDING, lane=Lane.SINGLE, batch_size=100)
    Hand(ledger).take(single, limit=1)
    with ledger.autocommit() as connection:
        connection.execute("INSERT INTO queue_pause (queue, operator, reason) VALUES ('email_bulk', 'kim', 'trial')")
    data = counted(ledger, [60] * 5, lambda: sections(app))
    [row] = [row for row in data["channels"]["channels"] if row["channel"] == "email"]
    assert (row["due"], row["in_hand"], row["clears"]["words"]) == (119, 1, "about 2 min")
    kept, shown = data["sends"]["sends"]
    assert (kept["time_left"]["words"], shown["id"]) == ("the queue is paused", str(single.id))
    assert (shown["per_minute"], shown["time_left"]["words"]) == (60, "about 2 min")
    text = text_of(Browser(app).get(f"/admin/monitoring/sends/{single.id}"))
    assert "about 2 min left" in text


def test_a_send_of_which_nobody_can_say_when_it_is_over_comes_first(app: Flask, ledger: Ledger) -> None:
    known, unknown = (make_send(ledger, count=count, status=SENDING, batch_size=100) for count in (600, 300))
    Hand(ledger).take(known, limit=1)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '5 minutes' WHERE send_id = %s", [unknown.id])
        connection.execute("UPDATE send SET started_at = now() - interval '5 minutes' WHERE id = %s", [unknown.id])
    first, second = counted(ledger, [60] * 5, lambda: sections(app)["sends"]["sends"])
    assert (first["id"], first["time_left"]["words"]) == (str(unknown.id), "no worker")
    assert (second["id"], second["time_left"]["seconds"]) == (str(known.id), 900)


def test_what_is_left_for_later_is_finishing_or_trying_again(app: Flask, ledger: Ledger) -> None:
    send = make_send(ledger, count=25, status=SENDING)
    put_rows(ledger, send.id, range(1, 25), "sent")
    put_rows(ledger, send.id, [25], "retrying", due_in="5 minutes")
    [shown] = sections(app)["sends"]["sends"]
    assert (shown["state"]["word"], shown["state"]["note"]) == ("finishing", "1 tried again")
    assert (shown["percent"], shown["time_left"]["words"]) == (96, "about 5 min")
    put_rows(ledger, send.id, range(1, 25), "retrying", due_in="9 minutes")
    assert state_of(app) == "trying again"
    put_rows(ledger, send.id, range(1, 25), "sent")
    put_rows(ledger, send.id, [25], "unsure", prove_in="1 minute")
    [shown] = sections(app)["sends"]["sends"]
    assert (shown["state"]["word"], shown["state"]["note"], shown["left"]) == ("finishing", "1 being proved", 1)
    assert shown["unsure"] == 1


def state_of(app: Flask) -> Any:
    [shown] = sections(app)["sends"]["sends"]
    return shown["state"]["word"]


def test_at_most_twenty_sends_are_shown_and_the_others_counted(app: Flask, ledger: Ledger) -> None:
    for count in range(1, 24):
        make_send(ledger, count=count, status=SENDING)
    data = sections(app)["sends"]
    assert [send["left"] for send in data["sends"]] == list(range(23, 3, -1))
    assert data["count"] == 23
    assert "3 more" in text_of(Browser(app).get("/admin/monitoring"))


def test_test_keys_have_a_row_of_their_own_and_no_part_in_the_figures(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=4, status=SENDING, mode=Mode.TEST)
    assert channel(app)["due"] == 0
    assert channel(app, mode="test")["due"] == 4
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent)"
            " VALUES (date_trunc('minute', now()), 1, 'test', 'email', 'sandbox', 3, 9)"
        )
    assert sections(app)["last_hour"]["sent"]["now"] == 0


def test_the_last_hour_is_compared_with_the_one_before(app: Flask, make_app: MakeApp, ledger: Ledger) -> None:
    def read() -> tuple[Any, str]:
        anew = make_app()  # knows no document yet, and shares none
        return sections(app)["last_hour"], text_of(Browser(anew).get("/admin/monitoring"))

    hour, text = counted(ledger, [10] * 60 + [15] * 60, read, failed=1)
    assert (hour["sent"]["now"], hour["sent"]["change"]) == (885, "50 % more than before")
    assert len(hour["sent"]["points"]) == 60
    assert sum(hour["sent"]["points"]) == 885
    assert (hour["failed"]["now"], hour["failed"]["attempts"], hour["failed"]["kind"]) == (59, 944, "warn")
    assert hour["rate"]["now"] == pytest.approx(15 / 60)
    assert 5 <= hour["took"]["median"] <= 7
    text = text_of(Browser(app).get("/admin/monitoring"))
    assert "Handed over 885" in text
    assert "Failed 59 6.2 %" in text


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "warn"),
        ({"monitoring_failure_percent": 20, "monitoring_failure_critical_percent": 30}, "ok"),
        ({"monitoring_failure_critical_percent": 5}, "bad"),
        ({"monitoring_failure_attempts_min": 2_000}, "ok"),
    ],
)
def test_the_card_of_failures_keeps_to_the_thresholds_that_are_set(
    make_app: MakeApp, ledger: Ledger, settings: dict[str, int], kind: str
) -> None:
    count_minutes(ledger, [9] * 50, failed=1)
    assert sections(make_app(**settings))["last_hour"]["failed"]["kind"] == kind


def test_failures_are_told_since_the_minute_from_which_too_many_failed(app: Flask, ledger: Ledger) -> None:
    count_minutes(ledger, [5] * 3, failed=1)
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent, failed)"
            " SELECT minute - interval '5 minutes', 2, mode, channel, provider, took, 5000, failed FROM minute_count"
        )
        [(first,)] = connection.execute("SELECT min(minute) FROM minute_count WHERE writer = 1")
    email, sms = sections(app)["traffic"]["channels"]
    assert (email["channel"], sms["failing_since"], sms["dead_lettering_since"]) == ("email", None, None)
    # A minute may end between the two looks at the clock.
    assert abs(datetime.fromisoformat(email["failing_since"]) - first) <= timedelta(minutes=1)
    assert email["dead_lettering_since"] is None


def test_what_was_requeued_or_discarded_is_no_longer_warned_of(app: Flask, ledger: Ledger) -> None:
    count_minutes(ledger, [99], failed=1)
    assert "open_15m" not in sections(app)["traffic"]["channels"][0]
    count_minutes(ledger, [88], failed=12)
    for status in ("dead_lettered", "failed"):
        make_failures(ledger, count=6, status=status)
    old = make_failures(ledger, count=3)
    age_failures(ledger, old.id, "17 minutes")
    test = make_failures(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET mode = 'test' WHERE id = %s", [test.id])

    def email() -> dict[str, Any]:
        found: dict[str, Any] = sections(app)["traffic"]["channels"][0]
        return found

    assert (email()["open_15m"], email()["dead_open_15m"]) == (12, 0)
    plan(ledger, FailureFilter(statuses=frozenset({DeliveryStatus.FAILED}), first=2))
    plan(ledger, FailureFilter(statuses=frozenset({DeliveryStatus.FAILED}), first=3), kind=OperationKind.DISCARD)
    finish(ledger)
    assert email()["open_15m"] == 7
    [warning] = [each for each in build(installed(app), None)["warnings"] if each["rule"].startswith("FailureRatio")]
    assert "7.0 % of e-mails failed in the last 15 min: 7 of 100, without 5 requeued or discarded" in warning["text"]
    assert warning["panel"] == "failures"


def test_the_cards_of_failures_lead_to_those_of_the_last_hour(app: Flask, ledger: Ledger) -> None:
    old = make_failures(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE failure SET failed_at = now() - interval '2 hours'")
    dead, failed = make_failures(ledger), make_failures(ledger, status="failed")
    browser = Browser(app)
    page = browser.get("/admin/monitoring").text
    found = re.findall(r'class="card[^"]*" href="([^"]+/failures[^"]*)"', page)
    shown = [browser.get(href.replace("&amp;", "&")).text for href in found]
    assert [[str(send.id) in text for send in (old, dead, failed)] for text in shown] == [
        [False, True, True],
        [False, True, False],
    ]


def test_a_real_send_shows_in_every_figure(app: Flask, ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=10, status=SENDING, age="30 seconds")
    claim, rows = hand.take(send)
    hand.record(claim, *(ended(row, DeliveryStatus.SENT) for row in rows[:4]), ended(rows[4], DeliveryStatus.FAILED))
    data = sections(app)
    assert (data["last_hour"]["sent"]["now"], data["last_hour"]["failed"]["now"]) == (4, 1)
    [shown] = data["sends"]["sends"]
    assert (shown["sent"], shown["failed"], shown["left"], shown["percent"]) == (4, 1, 5, 50)


def test_without_redis_the_circuit_is_not_known_and_the_rest_is(make_app: MakeApp, ledger: Ledger) -> None:
    make_send(ledger, count=6, status=SENDING)
    row = channel(make_app(email_provider="sandbox"))
    assert row["due"] == 6
    assert row["circuit"]["word"] == "not known"
