"""The digests' page: channels, the history with its filters, and what can be done from it."""

import re
from uuid import uuid4

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
from tests.integration.monitoring.test_bulk import let_begin
from tests.support.browser import Browser, text_of
from tests.support.digests import event, finding, make_channel, post, put, rows, statuses
from tests.support.ledger_rows import scalar
from tests.support.requeuing import finish

PATH = "/admin/monitoring/digests"
HISTORY, REQUEUE, DISCARD = f"{PATH}/history", f"{PATH}/requeue", f"{PATH}/discard"


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that confirms."""
    form = re.search(r'<form method="post" action="[^"]+" class="confirm">(.*?)</form>', page, re.DOTALL)
    assert form is not None, page
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form[1]))
    fields.pop("csrf_token")
    return fields


def confirm(browser: Browser, address: str, *, at: str = REQUEUE, **more: str) -> str:
    """Confirm what a preview shows; the path of the operation."""
    answer = browser.post(at, {**form_of(browser.get(address.replace("&amp;", "&")).text), **more})
    assert answer.status_code == 303, text_of(answer)
    return answer.location


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
    answer = browser.get(HISTORY)
    page, words = answer.text, text_of(answer)
    for said in ("nginx", "about b", "dead-lettered", "sent", "webhook_400: no such hook"):
        assert said in words
    assert "<b>1.3</b>" not in page
    messages = text_of(browser.get(PATH))
    assert "not taken" in messages
    for shown in (page, messages):
        assert "secret-part" not in shown
        assert "whsec_" not in shown


def test_an_address_in_a_subject_is_masked(browser: Browser, told: int, ledger: Ledger) -> None:
    post(ledger, event("d", subject="ada.lovelace@example.com cannot sign in"))
    with ledger.transaction() as connection:
        notifications.detect(connection, told)
    found = re.search(r'href="([^"]+/history/\d+)"', browser.get(HISTORY).text)
    assert found is not None
    for path in (HISTORY, found[1], f"{HISTORY}.csv"):
        text = browser.get(path).text
        assert "cannot sign in" in text
        assert "ada.lovelace" not in text


def test_filters_leave_what_fits(browser: Browser, told: int, ledger: Ledger) -> None:
    make_channel(ledger, "https://example.com/x", name="other", tenant="globex", tells_existing=True)

    def subjects(query: str) -> int:
        body = re.search(
            r'aria-label="Notifications">(.*?)</section>', browser.get(f"{HISTORY}?{query}").text, re.DOTALL
        )
        assert body is not None
        rows = body[1].count('<th scope="row"')
        assert browser.get(f"{HISTORY}.csv?{query}").text.strip().count("\n") == rows
        return rows

    assert subjects("") == 3
    assert subjects("status=dead_lettered") == 2
    assert subjects("kind=cve") == 1
    assert subjects("channel=other") == 0
    assert subjects("tenant=globex") == 0
    assert subjects("tenant=acme&status=sent") == 1
    assert subjects("channel=%00ops") == 3


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("status=nonsense", "status is one of pending, retrying, sent"),
        ("state=dead_lettered", "state is none of channel, kind"),
        ("batch=junk", "batch is the id of a message"),
        ("before=junk", "before comes from the page before"),
    ],
)
def test_a_filter_that_says_nothing_is_told(browser: Browser, told: int, query: str, said: str) -> None:
    paths = [HISTORY] if query == "before=junk" else [HISTORY, f"{HISTORY}.csv"]
    for path in paths:
        answer = browser.get(f"{path}?{query}")
        assert answer.status_code == 400
        assert said in text_of(answer)


def test_a_findings_key_that_is_an_address_is_masked_and_in_no_url(browser: Browser, ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    put(ledger, "ada@example.com", "other")
    tell(ledger, channel, Accepted(None))
    item = re.search(r'href="([^"]+/history/[0-9]+)">about a', browser.get(HISTORY).text)
    assert item is not None
    link = re.search(r'href="([^"]+[?&;]of=[0-9]+)"', browser.get(item[1]).text)
    assert link is not None
    page = browser.get(link[1].replace("&amp;", "&")).text
    assert len(re.findall(r'/history/[0-9]+"', page)) == 1
    assert "ada@" not in browser.get(item[1]).text + page
    assert browser.get(f"{HISTORY}?of=999999").status_code == 400


def test_the_history_is_read_page_by_page_without_gaps(browser: Browser, told: int, ledger: Ledger) -> None:
    post(ledger, *(f"more {number}" for number in range(60)))
    with ledger.transaction() as connection:
        notifications.detect(connection, told)
    first = browser.get(HISTORY).text
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older is not None
    second = browser.get(older[1].replace("&amp;", "&")).text
    ids = [int(id_) for page in (first, second) for id_ in re.findall(r'/history/(\d+)"', page)]
    assert len(ids) == len(set(ids)) == 63
    assert ids == sorted(ids, reverse=True)
    assert 'rel="next"' not in second


def test_one_tells_its_attempts_its_message_and_its_finding(browser: Browser, told: int, ledger: Ledger) -> None:
    put(ledger, finding("image:nginx", dedup_key="cve-1"))
    tell(ledger, told, Accepted(None))
    found = re.search(r'href="([^"]+/history/\d+)">about image:nginx', browser.get(HISTORY).text)
    assert found is not None
    answer = browser.get(found[1])
    said = text_of(answer)
    batch = rows(ledger)["cve-1"].batch
    assert f"Dispatch batch {batch} taken" in said
    assert "Attempts 1" in said
    assert "Finding image:nginx active" in said
    link = re.search(r'href="([^"]+batch=[^"]+)"', answer.text)
    assert link is not None
    assert "about image:nginx" in browser.get(link[1]).text
    assert "nginx &lt;b&gt;" not in browser.get(link[1]).text
    with ledger.transaction() as connection:
        connection.execute("UPDATE finding SET changed_at = now() - interval '3 days'")
    put(ledger, finding("image:nginx", dedup_key="cve-1", active=False))
    assert re.search(r"Finding image:nginx over, since (\d+ s ago|just now|now)", text_of(browser.get(found[1])))


def test_dead_letters_are_requeued_as_an_operation(browser: Browser, told: int, ledger: Ledger) -> None:
    page = browser.get(HISTORY).text
    address = re.search(r'href="(/admin/monitoring/digests/requeue[^"]*)"', page)
    assert address is not None
    path = confirm(browser, address[1], reason="it is back")
    said = text_of(browser.get(path))
    assert re.search(r"Requeueing 2 in (9|10) s Undo", said)
    assert "Requeue 2 notifications" in said
    assert "it is back" in said
    assert sorted(statuses(ledger).values()) == ["dead_lettered", "dead_lettered", "sent"]
    let_begin(ledger)
    finish(ledger)
    said = text_of(browser.get(path))
    assert "2 requeued, 0 skipped, 0 left" in said
    assert "2 pending" in said
    assert sorted(statuses(ledger).values()) == ["pending", "pending", "sent"]
    with ledger.autocommit() as connection:
        done, planned = audit.newest(connection, limit=2)
    assert (planned.action, planned.operator, planned.count, planned.reason) == ("requeue", "kim", 2, "it is back")
    assert done.action == "requeue done"
    tell(ledger, told, Accepted(None))
    assert "2 sent" in text_of(browser.get(path))


def test_one_dead_letter_or_those_of_a_filter_alone(browser: Browser, told: int, ledger: Ledger) -> None:
    found = re.search(r'href="([^"]+/history/\d+)">about b<', browser.get(f"{HISTORY}?kind=cve").text)
    assert found is not None
    one = re.search(r'href="([^"]+requeue\?id=\d+)"', browser.get(found[1]).text)
    assert one is not None
    assert "Requeue 1 notification<" in browser.get(one[1]).text
    path = confirm(browser, f"{REQUEUE}?kind=cve")
    let_begin(ledger)
    finish(ledger)
    assert statuses(ledger)["b"] == "pending"
    assert statuses(ledger)["c"] == "dead_lettered"
    assert "Taken by operation" in text_of(browser.get(found[1]))
    assert "no dead letter (any more)" in browser.get(one[1]).text
    assert path in browser.get("/admin/monitoring/operations").text


def test_an_undone_requeue_does_nothing_and_a_double_click_is_one(browser: Browser, told: int, ledger: Ledger) -> None:
    form = form_of(browser.get(REQUEUE).text)
    first, second = browser.post(REQUEUE, form), browser.post(REQUEUE, form)
    assert first.location == second.location
    assert "part of another operation" in browser.get(REQUEUE).text
    browser.post(f"{first.location}/undo")
    let_begin(ledger)
    finish(ledger)
    assert sorted(statuses(ledger).values()) == ["dead_lettered", "dead_lettered", "sent"]
    assert "Requeue 2 notifications" in browser.get(REQUEUE).text


def test_what_dies_after_the_preview_is_not_taken_and_what_was_told_since_is_skipped(
    browser: Browser, told: int, ledger: Ledger
) -> None:
    form = form_of(browser.get(REQUEUE).text)
    post(ledger, "late")
    tell(ledger, told, Permanent(Scope.MESSAGE, "x"), error="webhook_400: no such hook")
    path = browser.post(REQUEUE, form).location
    with ledger.transaction() as connection:
        connection.execute("UPDATE notification SET final_at = now() WHERE dedup_key = 'b'")
    let_begin(ledger)
    finish(ledger)
    assert statuses(ledger) == {"a": "sent", "b": "dead_lettered", "c": "pending", "late": "dead_lettered"}
    assert "1 requeued, 1 skipped" in text_of(browser.get(path))


def test_more_than_a_hundred_need_a_reason_and_many_chunks(browser: Browser, told: int, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status, final_at)"
            " SELECT %s, 'n' || n, 'x', 's', 'low', now(), 'dead_lettered', now() FROM generate_series(1, 498) n",
            [told],
        )
    form = form_of(browser.get(REQUEUE).text)
    assert "Say why" in browser.post(REQUEUE, form).text
    assert scalar(ledger, "SELECT count(*) FROM operation_notification") == 0
    browser.post(REQUEUE, {**form, "reason": "it is back"})
    let_begin(ledger)
    finish(ledger)
    assert scalar(ledger, "SELECT count(*) FROM notification WHERE status = 'pending'") == 500
    assert scalar(ledger, "SELECT done FROM operation") == 500


def test_a_channel_is_switched_off_for_a_reason_and_on(browser: Browser, told: int, ledger: Ledger) -> None:
    path = f"{PATH}/channels/ops/disable"
    assert "Say why" in browser.post(path, {}, follow=True).text
    assert "ops: disabled" in browser.post(path, {"reason": "bob@example.com said so"}, follow=True).text
    assert "ops: was disabled already" in browser.post(path, {"reason": "again"}, follow=True).text
    assert "disabled" in text_of(browser.get(PATH))
    assert "ops: enabled" in browser.post(f"{PATH}/channels/ops/enable", {}, follow=True).text
    with ledger.autocommit() as connection:
        enabled, disabled = audit.newest(connection, limit=2)
    assert (enabled.action, disabled.action, disabled.operator) == ("enable channel", "disable channel", "kim")
    assert disabled.reason is not None
    assert disabled.reason.endswith("said so")
    assert "bob@" not in disabled.reason


def test_a_channel_is_removed_after_it_was_shown_what_goes_with_it(browser: Browser, told: int, ledger: Ledger) -> None:
    post(ledger, "waits")
    with ledger.transaction() as connection:
        notifications.detect(connection, told)
    path = f"{PATH}/channels/ops/remove"
    edit = browser.get(f"{PATH}/channels/ops/edit").text
    assert f'href="{path}"' in edit
    shown = text_of(browser.get(path))
    for said in ("Not told yet 1", "Dead letters 2", "4 notifications in all, 2 messages"):
        assert said in shown
    assert "Say why" in text_of(browser.post(path, {}, follow=True))
    assert scalar(ledger, "SELECT count(*) FROM notification") == 4
    assert "ops: removed" in text_of(browser.post(path, {"reason": "the team is gone"}, follow=True))
    for table in ("digest_channel", "digest_channel_secret", "notification", "digest"):
        assert scalar(ledger, f"SELECT count(*) FROM {table}") == 0
    with ledger.autocommit() as connection:
        (entry,) = audit.newest(connection, limit=1)
    assert (entry.action, entry.target, entry.count) == ("remove channel", "digest channel ops", 1)
    assert (entry.reason, entry.operator) == ("the team is gone", "kim")
    assert entry.result == "removed with 4 notifications and 2 messages"
    assert browser.post(path, {"reason": "again"}).status_code == 404


def test_what_goes_with_a_channel_is_counted_up_to_ten_thousand(browser: Browser, told: int, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status, final_at)"
            " SELECT %s, 'n' || n, 'x', 's', 'low', now(), 'suppressed', now() FROM generate_series(1, 10000) n",
            [told],
        )
    shown = text_of(browser.get(f"{PATH}/channels/ops/remove"))
    for said in ("Not told yet 0", "Dead letters 2:", "10,000 or more notifications in all, 2 messages"):
        assert said in shown


def test_dead_letters_are_a_warning_that_leads_to_them_until_they_are_requeued(
    make_app: MakeApp, told: int, ledger: Ledger
) -> None:
    browser = Browser(make_app())
    page = browser.get(PATH)
    assert "2 notifications of digests are dead-lettered (ops): nobody is told unless somebody requeues." in text_of(
        page
    )
    look = re.search(r'href="([^"]+)" aria-label="Look: 2 notifications of digests', page.text)
    assert look is not None
    assert look[1] == f"{HISTORY}?status=dead_lettered"
    assert "about b" in browser.get(look[1]).text
    confirm(browser, REQUEUE)
    let_begin(ledger)
    finish(ledger)
    assert "notifications of digests" not in text_of(Browser(make_app()).get(PATH))


def test_dead_letters_that_nobody_wants_are_discarded_and_each_can_still_be_requeued(
    make_app: MakeApp, told: int, ledger: Ledger
) -> None:
    browser = Browser(make_app())
    refused = browser.post(DISCARD, form_of(browser.get(f"{DISCARD}?channel=ops").text))
    assert "Say why" in refused.text
    path = confirm(browser, f"{DISCARD}?channel=ops", reason="nobody wants them", at=DISCARD)
    let_begin(ledger)
    finish(ledger)
    assert "2 discarded, 0 skipped" in text_of(browser.get(path))
    assert statuses(ledger)["b"] == "dead_lettered"
    later = Browser(make_app())
    assert "notifications of digests" not in text_of(later.get(PATH))
    history = later.get(f"{HISTORY}?status=dead_lettered").text
    assert history.count('<span class="note">discarded</span>') == 2
    for address in (REQUEUE, DISCARD):
        said = text_of(later.get(address))
        assert "There is nothing to" in said
        assert re.search(r"\b2 ?: discarded", said)
    item = re.search(r'href="([^"]+/history/\d+)">about b<', history)
    assert item is not None
    shown = later.get(item[1]).text
    assert "digests/discard?id=" not in shown
    one = re.search(r'href="([^"]+requeue\?id=\d+)"', shown)
    assert one is not None
    confirm(later, one[1])
    let_begin(ledger)
    finish(ledger)
    assert statuses(ledger)["b"] == "pending"
    assert scalar(ledger, "SELECT count(discarded_at) FROM notification") == 1


def test_a_test_is_asked_of_a_worker_and_its_answer_shown(
    make_app: MakeApp, redis_url: str, told: int, ledger: Ledger
) -> None:
    browser = Browser(make_app(redis_url=redis_url))
    asked = browser.post(f"{PATH}/channels/ops/test", {})
    assert asked.status_code == 303
    address = asked.headers["Location"]
    waiting = text_of(browser.get(address))
    assert "Test of ops Asked for by kim" in waiting
    assert "waits for a worker" in waiting
    assert "if none does, start worker_ops" in waiting
    with ledger.transaction() as connection:
        row = connection.execute("SELECT id FROM digest_run WHERE channel_id IS NOT NULL").fetchone()
        assert row is not None
        assert digest_runs.begin(connection, row[0], worker="w") == (True, told)
        answer = {"accepted": False, "answer": "HTTP 404: <b>gone</b>", "means": "configuration", "tries": 1}
        digest_runs.end(connection, row[0], result={**answer, "why": None})
    shown = browser.get(address).text
    assert "HTTP 404: &lt;b&gt;gone&lt;/b&gt;" in shown
    assert "no success" in shown
    with ledger.autocommit() as connection:
        (entry,) = audit.newest(connection, limit=1)
    assert (entry.action, entry.target, entry.operator) == ("test channel", "digest channel ops", "kim")


def test_what_needs_a_worker_is_shut_while_redis_is_away_and_says_why(
    make_app: MakeApp, redis_url: str, told: int
) -> None:
    why = 'title="Redis does not answer: no worker can be told."'
    away, there = (Browser(make_app(**given)).get(PATH).text for given in ({}, {"redis_url": redis_url}))
    assert f'type="submit" disabled {why}>Tell what is due now' in away
    assert re.search(f'aria-disabled="true"[^>]+{why}>Send a test', away)
    assert why not in there
    for page in (away, there):
        assert 'aria-label="Disable ops"' in page  # the ledger is all it needs
    assert ">Test ops</button>" in Browser(make_app()).get(f"{PATH}/channels/ops/test").text
    assert "no worker can be told" in text_of(Browser(make_app()).get(f"{PATH}/channels/ops/test"))


def test_without_redis_nothing_is_asked_of_anybody(browser: Browser, told: int, ledger: Ledger) -> None:
    for path in ("run", "channels/ops/test"):
        said = text_of(browser.post(f"{PATH}/{path}", {}, follow=True))
        assert "Redis does not answer: no worker can be told. Nothing was done." in said
    with ledger.transaction() as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM digest_run").fetchall()]
        assert len(ids) == 2
        for id_ in ids:
            assert "Redis did not answer, so that no worker" in text_of(browser.get(f"{PATH}/runs/{id_}"))
            assert digest_runs.begin(connection, id_, worker="late") == (False, None)
        assert digest_runs.last(connection) is None


def test_what_a_worker_took_up_is_not_given_up(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        digest_runs.ask(connection, id_ := uuid4(), asked_by="kim")
        assert digest_runs.begin(connection, id_, worker="w") == (True, None)
        assert not digest_runs.give_up(connection, id_)


def test_a_run_whose_worker_is_gone_is_broken_off(browser: Browser, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        digest_runs.ask(connection, id_ := uuid4(), asked_by="kim")
        digest_runs.begin(connection, id_, worker="w")
    path = f"{PATH}/runs/{id_}"
    assert "under way" in text_of(browser.get(path))
    with ledger.autocommit() as connection:  # the longest call may take 20 s
        connection.execute("UPDATE digest_run SET started_at = now() - interval '82 seconds'")
    shown = browser.get(path)
    assert "broken off A worker took it up" in text_of(shown)
    assert "under way" not in text_of(shown)
    with ledger.autocommit() as connection:
        digest_runs.end(connection, id_, result={"told": 3})
    assert "3 told" in text_of(browser.get(path))


def test_who_may_only_read_changes_nothing(app: Flask, told: int, ledger: Ledger) -> None:
    reader = Browser(app, role=Role.READ, name="robin")
    assert reader.get(PATH).status_code == 200
    assert reader.get(HISTORY).status_code == reader.get(REQUEUE).status_code == 200
    assert reader.post(REQUEUE, {}).status_code == 403
    for action in ("test", "enable", "disable", "remove"):
        assert reader.post(f"{PATH}/channels/ops/{action}", {}).status_code == 403
    assert reader.post(f"{PATH}/run", {}).status_code == 403
    assert sorted(statuses(ledger).values()) == ["dead_lettered", "dead_lettered", "sent"]


@pytest.mark.parametrize(
    "path",
    [
        "channels/none/test",
        "channels/ops/explode",
        "history/999",
        f"history/{2**70}",
        "runs/00000000-0000-4000-8000-000000000000",
    ],
)
def test_what_is_not_there_is_404(browser: Browser, told: int, path: str) -> None:
    assert browser.get(f"{PATH}/{path}").status_code == 404


def test_an_empty_ledger_says_what_to_do(browser: Browser) -> None:
    assert "tidings digest channel add" in text_of(browser.get(PATH))
    assert "Nothing has been told yet" in text_of(browser.get(HISTORY))
    assert "There is nothing to requeue" in text_of(browser.get(REQUEUE))
