"""The System page and what may be done on it."""

import re
from typing import Any

import pytest
from flask import Flask

from admin.extensions import installed
from admin.local import procfile
from shared.accounts import accounts_in_use
from shared.coordination.heartbeat import Heartbeat, Identity
from shared.coordination.redis import RedisLink, connect
from shared.coordination.slot_waits import SlotWaits
from shared.domain.roles import Role
from shared.domain.states import SendStatus
from shared.ledger import pauses, providers
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.factories import make_send
from tests.support.processes import CHECKOUT

PAGE = "/admin/monitoring/system"
HOLD, RELEASE = (f"{PAGE}/providers/sandbox:sandbox/{action}" for action in ("hold", "release"))
PAUSE, RESUME = (f"{PAGE}/queues/email_bulk/{action}" for action in ("pause", "resume"))


@pytest.fixture
def app(make_app: MakeApp, redis_url: str) -> Flask:
    return make_app(redis_url=redis_url, email_provider="sandbox", sms_provider="sandbox")


def holds(ledger: Ledger) -> list[Any]:
    with ledger.transaction() as connection:
        return [(hold.provider, hold.operator, hold.reason) for hold in providers.holds(connection)]


def paused(ledger: Ledger) -> list[Any]:
    with ledger.transaction() as connection:
        return [(pause.queue, pause.operator, pause.reason) for pause in pauses.paused(connection).values()]


def audited(ledger: Ledger) -> list[Any]:
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator, action, target, reason, result FROM audit ORDER BY id")
        return rows.fetchall()


def test_the_page_has_every_panel_and_tells_a_new_installation_how_to_begin(browser: Browser) -> None:
    answer = browser.get(PAGE)
    assert answer.status_code == 200
    for panel in ("foundations", "providers", "queues", "workers", "recovery", "redis", "installation"):
        assert f'data-panel="{panel}"' in answer.text
    said = text_of(answer)
    assert "No worker has been seen in the last 15 minutes." in said
    [entry] = [entry for entry in procfile.read(CHECKOUT / "Procfile") if entry.name == "worker_send"]
    assert f"worker_send: {entry.command}" in said
    assert "gunicorn" not in said
    assert "noeviction" in said


def test_the_meter_of_redis_turns_at_the_share_that_is_set(make_app: MakeApp, redis_url: str) -> None:
    client = connect(redis_url, timeout_s=2)
    client.config_set("maxmemory", 1_000_000_000)
    try:
        page = Browser(make_app(redis_url=redis_url, monitoring_redis_memory_percent=55)).get(PAGE).text
    finally:
        client.config_set("maxmemory", 0)
        client.close()
    assert 'max="1000000000" high="550000000.0"' in page


def test_a_panel_is_the_same_a_moment_later_unless_something_changed(browser: Browser) -> None:
    names = ("foundations", "providers", "queues", "workers", "recovery", "redis", "installation")
    have = ",".join(f"{name}:x" for name in names)
    first = browser.get(f"/admin/monitoring/panels?page=system&have={have}").get_json()["panels"]
    assert set(names) <= set(first)
    have = ",".join(f"{name}:{panel['hash']}" for name, panel in first.items())
    again = browser.get(f"/admin/monitoring/panels?page=system&have={have}").get_json()["panels"]
    assert set(again) & {"providers", "queues", "workers", "installation"} == set()


def test_a_worker_is_listed_with_what_it_is_doing(browser: Browser, redis_url: str) -> None:
    link = RedisLink(redis_url, timeout_s=2)
    worker = Heartbeat(link, Identity("w1", "worker_send.1", "worker_send", "1.0", ("email", "sms"), threads=8))
    worker.progress("t1", busy=True)
    worker.drain(105)
    worker.beat()
    said = text_of(browser.get(PAGE))
    assert "worker_send.1" in said
    assert "of 105 s left" in said
    assert "1 of 8" in said
    link.close()


def test_a_provider_is_held_with_a_reason_shown_with_who_and_why_and_released(browser: Browser, ledger: Ledger) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING)
    asked = text_of(browser.get(HOLD))
    assert "until somebody releases it: e-mail and SMS both stop. 30 deliveries are due for it now; they wait" in asked

    without = browser.post(HOLD, {"reason": "  "}, follow=True)
    assert "Say why" in text_of(without)
    assert holds(ledger) == []

    done = browser.post(HOLD, {"reason": " they asked\nus to "})
    assert done.headers["Location"] == f"{PAGE}#providers"
    assert holds(ledger) == [("sandbox", "kim", "they asked us to")]
    said = text_of(browser.get(PAGE))
    assert "held by kim: they asked us to" in said, "whoever did it sees it at once"
    assert "Provider sandbox held by kim (they asked us to): 30 messages are waiting." in said
    asked = text_of(browser.get(RELEASE))
    assert re.search(r"Held by kim since [0-9: -]+ UTC : they asked us to. 30 deliveries are waiting; they go", asked)
    assert browser.post(RELEASE).status_code == 302
    assert holds(ledger) == []
    assert audited(ledger) == [
        ("kim", "hold", "provider sandbox:sandbox", "they asked us to", "held"),
        ("kim", "release", "provider sandbox:sandbox", None, "released"),
    ]


def test_what_is_held_back_on_purpose_is_due_on_its_queue_and_not_old(browser: Browser, ledger: Ledger) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING)
    assert re.search(r"email_bulk no worker 0 0 0 – 30 (just now|\d+ s ago) 0 / 0", text_of(browser.get(PAGE)))
    browser.post(HOLD, {"reason": "they asked"})
    assert "email_bulk no worker 0 0 0 – 30 held back – 0 / 0" in text_of(browser.get(PAGE))
    browser.post(RELEASE)
    browser.post(PAUSE, {"reason": "later"})
    assert "30 held back – 0 / 0" in text_of(browser.get(PAGE))


def test_an_address_in_a_reason_that_did_not_come_through_a_page_is_masked_on_it(
    browser: Browser, ledger: Ledger
) -> None:
    why = "jane.doe@example.com asked"
    with ledger.transaction() as connection:
        pauses.pause(connection, "email_bulk", operator="kim", reason=why)
        providers.hold(connection, provider="sandbox", credential="sandbox", operator="kim", reason=why)
    for path in (PAGE, "/admin/monitoring/queues"):
        shown = browser.get(path).text
        assert "jane.doe" not in shown
        assert "j***@e***.com asked" in shown


def test_a_queue_is_paused_with_a_reason_and_resumed(browser: Browser, ledger: Ledger) -> None:
    assert "0 deliveries are due on it now" in text_of(browser.get(PAUSE))
    assert "Say why" in text_of(browser.post(PAUSE, follow=True))
    assert browser.post(PAUSE, {"reason": "x" * 900}).headers["Location"] == f"{PAGE}#queues"
    assert paused(ledger) == [("email_bulk", "kim", "x" * 500)]
    assert browser.post(PAUSE, {"reason": "again"}, follow=True).status_code == 200
    assert browser.post(RESUME, {"reason": "it is over"}).status_code == 302
    assert paused(ledger) == []
    assert [(row[1], row[4]) for row in audited(ledger)] == [
        ("pause queue", "paused"),
        ("pause queue", "was paused already"),
        ("resume queue", "resumed"),
    ]


@pytest.mark.parametrize(
    "path",
    [f"{PAGE}/queues/ops/pause", f"{PAGE}/queues/nothing/pause", f"{PAGE}/queues/email/delete",
     f"{PAGE}/providers/nobody:x/hold", f"{PAGE}/providers/sandbox:sandbox/drop"],
)  # fmt: skip
def test_what_is_not_there_or_may_not_be_stopped_is_not_found(browser: Browser, path: str, ledger: Ledger) -> None:
    assert browser.get(path).status_code == 404
    assert browser.post(path, {"reason": "x"}).status_code == 404
    assert audited(ledger) == []


def test_who_may_only_read_sees_the_actions_with_the_reason_and_cannot_do_them(
    make_app: MakeApp, redis_url: str, ledger: Ledger
) -> None:
    app = make_app(redis_url=redis_url, email_provider="sandbox", admin_read_role="READER")
    reader = Browser(app, role=Role.READ)
    page = reader.get(PAGE)
    assert page.status_code == 200
    assert 'aria-disabled="true"' in page.text
    assert HOLD not in page.text
    assert reader.get(HOLD).status_code == 403
    assert reader.post(HOLD, {"reason": "x"}).status_code == 403
    assert reader.post(PAUSE, {"reason": "x"}).status_code == 403
    assert (holds(ledger), paused(ledger)) == ([], [])


def test_without_redis_the_ledger_s_panels_stay_and_a_hold_is_kept_all_the_same(
    make_app: MakeApp, ledger: Ledger
) -> None:
    browser = Browser(make_app(email_provider="sandbox"))
    said = text_of(browser.get(PAGE))
    assert "Redis down" in said
    assert "Nothing to show: Redis does not answer" in said
    assert "Last pass" in said or "No pass has run yet" in said
    held = browser.post(HOLD, {"reason": "a trial"}, follow=True)
    assert "held. Redis does not answer; it is told as soon as it does." in text_of(held)
    assert holds(ledger) == [("sandbox", "kim", "a trial")]


def test_how_long_windows_waited_for_a_slot_is_shown_and_measured(make_app: MakeApp, redis_url: str) -> None:
    app = make_app(redis_url=redis_url, email_provider="smtp", smtp_host="relay.example.com", smtp_security="none")
    settings = installed(app).settings
    credential = dict(accounts_in_use(settings))["smtp"]
    waits = SlotWaits(installed(app).link, provider="smtp", credential=credential, namespace=settings.redis_namespace)
    for seconds in (0.0, *[0.6] * 19):
        waits.count(seconds)
    waits.flush()
    assert "slots after 0.7 s" in text_of(Browser(app).get(PAGE))
    assert re.search(r'tidings_provider_slot_wait_seconds{provider="smtp"} 0\.6', Browser(app).get("/metrics").text)
