"""The digests' page: channels, the history with its filters, and what can be done from it."""

import re

import pytest
from flask import Flask

from shared.domain.digest_retry import judge
from shared.domain.digests import Severity
from shared.domain.outcome import Accepted, Outcome, Permanent, Scope
from shared.domain.retry import RetryPolicy
from shared.domain.roles import Role
from shared.ledger import audit, digest_channels, digest_runs, notifications
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.digests import event, make_channel, post, statuses

PATH = "/admin/monitoring/digests"


def tell(ledger: Ledger, channel: int, outcome: Outcome, *, error: str | None = None) -> None:
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        notifications.detect(connection, channel)
        claimed = notifications.claim(connection, taken, lease_s=60)
        assert claimed is not None
        judged = judge(outcome, claimed.digest.items, RetryPolicy(max_attempts=1), now=taken.now)
        notifications.record(connection, claimed, judged, outcome="x", error=error)


@pytest.fixture
def told(ledger: Ledger) -> int:
    """A channel on which one thing was told and two died."""
    channel = make_channel(ledger, "https://example.com/hook?key=secret-part")
    post(ledger, event("a", subject="nginx <b>1.3</b> is out"))
    tell(ledger, channel, Accepted(None))
    post(ledger, event("b", kind="cve", severity=Severity.CRITICAL), event("c"))
    tell(ledger, channel, Permanent(Scope.MESSAGE, "x"), error="webhook_400: no such hook")
    return channel


def test_the_history_tells_the_story_and_no_secret(browser: Browser, told: int) -> None:
    answer = browser.get(PATH)
    page, words = answer.text, text_of(answer)
    for said in ("nginx", "about b", "dead-lettered", "sent", "webhook_400: no such hook", "not taken", "taken"):
        assert said in words
    assert "<b>1.3</b>" not in page
    assert "secret-part" not in page
    assert "whsec_" not in page


def test_filters_leave_what_fits(browser: Browser, told: int, ledger: Ledger) -> None:
    make_channel(ledger, "https://example.com/x", name="other", tells_existing=True)

    def subjects(query: str) -> int:
        body = re.search(r'aria-label="Notifications">(.*?)</section>', browser.get(f"{PATH}?{query}").text, re.DOTALL)
        assert body is not None
        return body[1].count('<th scope="row"')

    assert subjects("") == 3
    assert subjects("status=dead_lettered") == 2
    assert subjects("kind=cve") == 1
    assert subjects("channel=other") == 0
    assert subjects("status=nonsense&before=junk") == 3
    assert subjects("channel=%00ops") == 3


def test_a_dead_letter_or_all_of_them_are_told_again(browser: Browser, told: int, ledger: Ledger) -> None:
    page = browser.get(f"{PATH}?status=dead_lettered").text
    addresses = re.findall(r'href="([^"]*/requeue\?id=(\d+))"', page)
    assert len(addresses) == 2
    assert "One dead letter" in browser.get(addresses[0][0].replace("&amp;", "&")).text
    ask = f"{PATH}/channels/ops/requeue"
    done = browser.post(ask, {"id": addresses[0][1], "reason": "it is back"}, follow=True)
    assert "ops: 1 to be told again" in done.text
    assert sorted(statuses(ledger).values()) == ["dead_lettered", "pending", "sent"]
    assert "ops: 1 to be told again" in browser.post(ask, {}, follow=True).text
    with ledger.autocommit() as connection:
        (newest, first) = audit.newest(connection, limit=2)
    assert (first.action, first.target, first.count) == ("requeue notifications", "digest channel ops", 1)
    assert (first.reason, first.operator) == ("it is back", "kim")
    assert newest.reason is None


def test_a_channel_is_switched_off_and_on(browser: Browser, told: int, ledger: Ledger) -> None:
    assert "ops: disabled" in browser.post(f"{PATH}/channels/ops/disable", {}, follow=True).text
    assert "ops: was disabled already" in browser.post(f"{PATH}/channels/ops/disable", {}, follow=True).text
    assert "disabled" in text_of(browser.get(PATH))
    assert "ops: enabled" in browser.post(f"{PATH}/channels/ops/enable", {}, follow=True).text


def test_a_test_is_asked_of_a_worker_and_its_answer_shown(
    make_app: MakeApp, redis_url: str, told: int, ledger: Ledger
) -> None:
    browser = Browser(make_app(redis_url=redis_url))
    asked = browser.post(f"{PATH}/channels/ops/test", {})
    assert asked.status_code == 303
    address = asked.headers["Location"]
    assert "waits for a worker" in browser.get(address).text
    with ledger.transaction() as connection:
        row = connection.execute("SELECT id FROM digest_run WHERE channel_id IS NOT NULL").fetchone()
        assert row is not None
        assert digest_runs.begin(connection, row[0], worker="w") == (True, told)
        answer = {"accepted": False, "answer": "HTTP 404: <b>gone</b>", "means": "configuration", "tries": 1}
        digest_runs.end(connection, row[0], result={**answer, "why": None})
    shown = browser.get(address).text
    assert "HTTP 404: &lt;b&gt;gone&lt;/b&gt;" in shown
    assert "no success" in shown


def test_without_redis_nothing_is_asked_of_anybody(browser: Browser, told: int) -> None:
    assert "Redis does not answer" in browser.post(f"{PATH}/run", {}, follow=True).text


def test_who_may_only_read_changes_nothing(app: Flask, told: int, ledger: Ledger) -> None:
    reader = Browser(app, role=Role.READ, name="robin")
    assert reader.get(PATH).status_code == 200
    for action in ("test", "enable", "disable", "requeue"):
        assert reader.post(f"{PATH}/channels/ops/{action}", {}).status_code == 403
    assert reader.post(f"{PATH}/run", {}).status_code == 403
    assert sorted(statuses(ledger).values()) == ["dead_lettered", "dead_lettered", "sent"]


@pytest.mark.parametrize(
    "path", ["channels/none/test", "channels/ops/explode", "runs/00000000-0000-4000-8000-000000000000"]
)
def test_what_is_not_there_is_404(browser: Browser, told: int, path: str) -> None:
    assert browser.get(f"{PATH}/{path}").status_code == 404


def test_an_empty_ledger_says_what_to_do(browser: Browser) -> None:
    words = text_of(browser.get(PATH))
    assert "tidings digest channel add" in words
    assert "Nothing has been told yet" in words
