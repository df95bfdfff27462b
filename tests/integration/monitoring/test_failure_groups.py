"""Groups of failures: what a filter leaves of them, what is unsure in them, and one that fills more than a page."""

import re
from html import unescape

import pytest

from shared.domain.ids import delivery_id
from shared.domain.requeue import FailureFilter
from shared.domain.states import Channel
from shared.ledger import operation_results
from shared.ledger.db import Ledger
from tests.support.browser import Browser, text_of
from tests.support.failing import CAUSE, TITLE, age_failures, fail_again, make_failures
from tests.support.ledger_rows import put_rows
from tests.support.requeuing import chunk, finish, of, plan

PAGE = "/admin/monitoring/failures"
GROUP = f"{PAGE}/groups/{CAUSE}"


def link(page: str, words: str) -> str:
    """Where a link with these words, or this label, leads."""
    for tag, text in re.findall(r"<a ([^>]*)>(.*?)</a>", page, re.DOTALL):
        if words in (re.sub(r"<[^>]+>", "", text).strip(), *re.findall(r'aria-label="([^"]+)"', tag)):
            return unescape(re.findall(r'href="([^"]+)"', tag)[0])
    raise AssertionError(f"no link {words!r} in {page}")


def panel(page: str, name: str) -> str:
    found = re.search(rf'<section[^>]* id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None, page
    return found[0]


@pytest.mark.parametrize("query", ["", "?tenant=acme&discarded="])
def test_a_group_that_fills_more_than_a_page_is_read_to_its_end_and_from_its_beginning(
    browser: Browser, ledger: Ledger, query: str
) -> None:
    send = make_failures(ledger, count=60)
    make_failures(ledger, tenant="other")
    age_failures(ledger, send.id, "1 hour")
    first = browser.get(f"{GROUP}{query or '?send=' + str(send.id)}").text
    second = browser.get(link(first, "Older"))
    seen = [re.findall(r'name="id" value="([^"]+)"', page) for page in (first, second.text)]
    assert seen[0] + seen[1] == [delivery_id(send.id, row_no) for row_no in range(1, 61)]
    again = browser.get(link(second.text, "Newest")).text
    assert re.findall(r'name="id" value="([^"]+)"', again) == seen[0]


@pytest.mark.parametrize("asked", ["send", "tenant"])
def test_a_group_reached_from_a_filtered_page_keeps_to_its_filter(browser: Browser, ledger: Ledger, asked: str) -> None:
    mine = make_failures(ledger, count=3)
    make_failures(ledger, count=2, tenant="other")
    value = {"send": str(mine.id), "tenant": "acme"}[asked]
    page = browser.get(link(browser.get(f"{PAGE}?{asked}={value}").text, TITLE))
    said = text_of(page)
    assert "Open 3 of 1 tenant, dead-lettered" in said
    assert f"All dead-lettered or failed or unsure deliveries of {asked} {value} with cause" in said
    assert "Requeue 3…" in said
    for words in (f"Requeue 3…: {TITLE}".replace("…", ""), f"Discard 3: {TITLE}", "CSV"):
        assert f"{asked}={value}" in link(page.text, words)
    assert "Requeue 3 e-mails" in text_of(browser.get(link(page.text, f"Requeue 3: {TITLE}")))
    whole = text_of(browser.get(link(page.text, "the whole group")))
    assert "Open 5 of 2 tenants" in whole
    assert "the whole group" not in whole


def test_a_filter_that_leaves_nothing_of_a_group_offers_nothing(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, cause="bbbbbbbbbbbb", tenant="other")
    said = text_of(browser.get(f"{GROUP}?tenant=other"))
    assert "Open none" in said
    assert "Nothing here." in said
    assert "Requeue" not in said.replace("Last requeue", "")


def test_a_group_s_file_has_what_its_page_has(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, status="unsure")
    file = browser.get(link(browser.get(GROUP).text, "CSV"))
    assert len(file.text.splitlines()) == 1 + 5
    file = browser.get(link(browser.get(f"{GROUP}?status=unsure").text, "CSV"))
    assert len(file.text.splitlines()) == 1 + 2


def test_the_unsure_of_a_group_are_acted_on_apart(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, status="unsure")
    page = browser.get(GROUP).text
    final = text_of(browser.get(link(page, f"Requeue 3: {TITLE}")))
    assert "Requeue 3 e-mails" in final
    assert "possible duplicates: the unsure" not in final
    unsure = text_of(browser.get(link(page, f"Requeue 2 unsure: {TITLE}")))
    assert "Requeue 2 e-mails" in unsure
    assert "I accept possible duplicates" in unsure


def test_a_row_that_is_unsure_leads_to_the_tick_and_so_does_a_preview_that_leaves_some_out(
    browser: Browser, ledger: Ledger
) -> None:
    make_failures(ledger, count=2, status="unsure")
    rows = panel(browser.get(f"{PAGE}?status=any").text, "groups")
    assert "I accept possible duplicates" in text_of(browser.get(link(rows, f"Requeue: {TITLE}")))
    everything = browser.get(link(rows, "Requeue all of this filter: everything shown"))
    assert "There is nothing to requeue." in text_of(everything)
    apart = text_of(browser.get(link(everything.text, "look at these apart")))
    assert "Requeue 2 e-mails" in apart
    assert "I accept possible duplicates" in apart


@pytest.mark.parametrize(("state", "empty"), [("unsure", "newest"), ("failed", "unsure")])
def test_a_part_of_the_page_that_the_chosen_state_leaves_out_is_empty(
    browser: Browser, ledger: Ledger, state: str, empty: str
) -> None:
    shown = {"unsure": "newest", "newest": "unsure"}[empty]
    make_failures(ledger, status="failed", cause="aaaaaaaaaaaa")
    make_failures(ledger, status="unsure", cause="bbbbbbbbbbbb")
    page = browser.get(f"{PAGE}?status={state}").text
    assert "<tbody" in panel(page, shown)
    assert "matches this filter." in panel(page, empty)
    for absent in ("<tbody", "operations/new", "failures/list", "failures.csv"):
        assert absent not in panel(page, empty)


def test_a_note_is_on_the_page_at_once_and_its_author_stays_where_they_were(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    browser.get(PAGE)  # the figures are fresh, and are not made again for two seconds
    answer = browser.post(f"{GROUP}/note?tenant=acme", {"text": "ticket 12"})
    assert answer.headers["Location"] == f"{GROUP}?status=any&tenant=acme"
    assert "ticket 12" in panel(browser.get(PAGE).text, "groups")


def test_a_row_says_how_far_the_last_requeue_is_and_what_came_of_it(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=4)
    plan(ledger, of(send, first=3), undo_s=600)
    query = "?tenant=acme"  # read anew each time
    assert "3 planned, can be undone" in row(browser, query)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET run_at = now()")
    with ledger.transaction() as connection:
        chunk(connection, size=1)
    assert "1 of 3 requeued" in row(browser, query)
    finish(ledger)
    assert "0 of 3 sent" in row(browser, query)
    put_rows(ledger, send.id, [1, 2], "sent")
    assert "2 of 3 sent" in row(browser, query)
    fail_again(ledger, send.id, [3])
    assert "1 failed again , 2 sent" in row(browser, query)
    assert "kim : 1 failed again , 2 sent" in text_of(browser.get(GROUP))


def row(browser: Browser, query: str) -> str:
    page = panel(browser.get(f"{PAGE}{query}").text, "groups")
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.parametrize(
    ("result", "sent"),
    [
        (None, None),
        ('{"meanwhile": {"at": "2026-05-01T10:00:00+00:00", "outcome": {}}}', None),
        ('{"meanwhile": {"at": "2026-05-01T10:00:00+00:00", "outcome": {"owed": 6000}}}', 0),
        ('{"at": "2026-05-01T10:00:00+00:00", "skips": {}, "outcome": {"sent": 5999, "failed": 1}}', 5999),
    ],
)
def test_what_is_sent_of_a_large_requeue_is_what_was_written_down(
    browser: Browser, ledger: Ledger, result: str | None, sent: int | None
) -> None:
    make_failures(ledger, count=2)
    large = plan(ledger, FailureFilter(first=1))
    finish(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET done = 6000, total = 6000, result = %s::jsonb", [result])
        assert operation_results.sent(connection, [large.id]) == {large.id: sent}
    words = "6,000 requeued" if sent is None else f"{sent:,} of 6,000 sent"
    assert words in row(browser, "?tenant=acme")


def test_channels_tell_groups_apart_that_are_else_alike(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger)
    make_failures(ledger, cause="bbbbbbbbbbbb", channel=Channel.SMS)
    rows = panel(browser.get(PAGE).text, "groups")
    assert [re.findall(r'class="channel is-(\w+)"', part) for part in rows.split(TITLE + "</a>")[1:]] == [
        ["email"],
        ["sms"],
    ]


def test_groups_by_send_have_its_name_and_tenant_and_lead_to_it(browser: Browser, ledger: Ledger) -> None:
    send, nameless = make_failures(ledger), make_failures(ledger, count=2, tenant="other")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET name = 'Letters of jane.doe@example.com' WHERE id = %s", [send.id])
    rows = panel(browser.get(f"{PAGE}?by=send").text, "groups")
    assert "jane.doe" not in rows
    assert link(rows, "Letters of j***@e***.com").endswith(f"send={send.id}")
    assert link(rows, "The send Letters of j***@e***.com") == f"/admin/monitoring/sends/{send.id}"
    assert link(rows, f"{str(nameless.id)[:13]}…").endswith(f"send={nameless.id}")
    assert re.findall(r"the send</a> · (\w+) · dead-lettered", " ".join(rows.split())) == ["other", "acme"]
