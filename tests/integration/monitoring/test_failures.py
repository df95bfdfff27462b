"""The Failures pages: groups, lists, one delivery, finding a recipient, files."""

import re
from urllib.parse import urlencode

import pytest
from flask import Flask

from shared.domain.ids import delivery_id
from shared.domain.roles import Role
from shared.domain.states import Channel, SendStatus
from shared.ledger import failed_jobs
from shared.ledger.db import Ledger
from tests.support.browser import Browser, text_of
from tests.support.factories import make_send
from tests.support.failing import CAUSE, TITLE, age_failures, make_failures
from tests.support.ledger_rows import put_rows, put_send, scalar
from tests.support.requeuing import finish, of, plan

PAGE = "/admin/monitoring/failures"


def test_nothing_failed_is_said_with_what_would_show(browser: Browser) -> None:
    said = text_of(browser.get(PAGE))
    for words in ("No failures.", "Nothing is unsure.", "No dead letters.", "No failed jobs."):
        assert words in said


def test_the_top_line_counts_what_is_open_and_what_the_machine_still_tries(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, status="failed", cause="bbbbbbbbbbbb", title="refused")
    make_failures(ledger, count=2, status="unsure", cause="cccccccccccc", title="cut off")
    retrying = make_send(ledger, count=2)
    put_rows(ledger, retrying.id, [1, 2], "retrying", due_in="10 minutes")
    said = text_of(browser.get(PAGE))
    counts = r"3 dead-lettered · 1 failed in 2 groups · 2 retrying \(next in (9|10) min \) · 2 unsure"
    assert re.search(counts, said)
    assert re.search(r"Failures 6\b", said)


def test_failures_of_one_cause_are_one_group_with_its_tenants_and_last_requeue(
    browser: Browser, ledger: Ledger
) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, tenant="other")
    row = group_row(browser.get(PAGE).text, TITLE)
    assert "ches · dead-lettered" in row
    assert 'data-label="Count"><span class="figure">5</span>' in row
    assert 'data-label="Tenants"><span class="figure">2</span>' in row
    assert '<span class="tag">new</span>' not in row


@pytest.mark.parametrize(
    ("by", "shown"),
    [("tenant", "other"), ("provider", "twilio"), ("channel", "SMS"), ("kind", "failed")],
)
def test_groups_by_something_else_than_the_error(browser: Browser, ledger: Ledger, by: str, shown: str) -> None:
    make_failures(ledger, count=3)
    make_failures(
        ledger, status="failed", cause="bbbbbbbbbbbb", title="x", tenant="other", channel=Channel.SMS, provider="twilio"
    )
    page = browser.get(f"{PAGE}?by={by}").text
    row = group_row(page, shown)
    assert 'data-label="Count"><span class="figure">1</span>' in row
    narrowed = browser.get(
        re.search(r'<th scope="row" class="group-title">\s*<a [^>]*href="([^"]+)">' + shown, page)[1]
    )  # type: ignore[index]
    assert TITLE not in text_of(narrowed).split("Groups Error")[1].split("Unsure")[0]


def test_a_group_leads_to_its_failures_and_takes_a_note(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, cause="bbbbbbbbbbbb", title="another")
    group = f"{PAGE}/groups/{CAUSE}"
    said = text_of(browser.get(group))
    assert TITLE in said
    assert said.count("p***@e***.com") == 3
    answer = browser.post(f"{group}/note", {"text": "ticket 12, ask jane@example.com"}, follow=True)
    assert "ticket 12, ask j***@e***.com" in answer.text
    assert "kim" in text_of(answer)
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE action = 'note' AND detail::text NOT LIKE '%%jane%%'") == 1
    browser.post(f"{group}/note", {"text": " "})
    assert scalar(ledger, "SELECT count(*) FROM failure_note") == 0


def test_a_list_is_paged_by_key_with_none_lost_among_equal_times(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=120)
    age_failures(ledger, send.id, "1 hour")
    seen: list[str] = []
    path = f"{PAGE}/list"
    while path:
        page = browser.get(path).text
        seen += re.findall(r'name="id" value="([^"]+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = older[1].replace("&amp;", "&") if older else ""
    assert seen == [delivery_id(send.id, row_no) for row_no in range(1, 121)]


def test_the_attempts_of_all_lives_are_shown_and_those_since_the_last_requeue(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=2)
    plan(ledger, of(send, first=1))
    finish(ledger)
    put_rows(ledger, send.id, [1], "dead_lettered", attempts=2)
    put_rows(ledger, send.id, [2], "owed")
    put_rows(ledger, send.id, [2], "dead_lettered", attempts=5)
    said = text_of(browser.get(f"{PAGE}/list"))
    assert "E-mail dead-lettered after 2 400: invalid recipient domain 7 just now" in said
    assert "E-mail dead-lettered after 5 400: invalid recipient domain 5 just now" in said
    assert "Attempts 7 , 2 of them since its last requeue (1×)" in text_of(browser.get(f"{PAGE}/{send.id}.1"))


def test_a_group_says_since_when_its_cause_is_known_and_since_when_something_is_open(
    browser: Browser, ledger: Ledger
) -> None:
    make_failures(ledger)
    assert "First seen · last" in text_of(browser.get(PAGE))
    assert re.search(r"2 h ago</time></span> <span class=.line.><time", group_row(browser.get(PAGE).text, TITLE))
    by_tenant = browser.get(f"{PAGE}?by=tenant")
    assert "Oldest · last" in text_of(by_tenant)
    assert "2 h ago" not in group_row(by_tenant.text, "acme")


def test_a_delivery_shows_its_history_masked(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(
        ledger, addresses=["jane.doe@example.com"], status="unsure", detail="451 jane.doe@example.com: cut off"
    )
    page = browser.get(f"{PAGE}/{send.id}.1")
    said = text_of(page)
    assert "jane.doe" not in page.text
    for words in ("j***@e***.com", "accepted", "attempt 5", "ches", "cut off", "bytes sent 812"):
        assert words in said
    assert browser.get(f"{PAGE}/{send.id}.7").status_code == 404
    assert browser.get(f"{PAGE}/nonsense").status_code == 404


def test_a_tenant_s_reference_that_is_an_address_is_masked_on_the_item_page(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, addresses=["a1@example.com"])
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET reference = 'case of jane.doe@example.com'")
    page = browser.get(f"{PAGE}/{send.id}.1")
    assert "jane.doe" not in page.text
    assert "their reference case of j***@e***.com" in text_of(page)


def test_what_was_refused_at_acceptance_can_be_discarded_and_not_requeued(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, status="failed")
    path = f"{PAGE}/{send.id}.1"
    assert "kind=requeue" in browser.get(path).text
    with ledger.autocommit() as connection:
        connection.execute("UPDATE failure SET refused = true")
    page = browser.get(path).text
    assert ("kind=requeue" in page, "kind=discard" in page) == (False, True)


def test_an_address_is_revealed_for_a_reason_that_the_audit_keeps(browser: Browser, ledger: Ledger, app: Flask) -> None:
    send = make_failures(ledger, addresses=["jane.doe@example.com"])
    path = f"{PAGE}/{send.id}.1/reveal"
    assert "jane.doe@" not in browser.post(path, {"reason": " "}, follow=True).text
    shown = browser.post(path, {"reason": "they called"})
    assert "jane.doe@example.com" in shown.text
    assert shown.headers["Cache-Control"] == "no-store"
    assert "jane.doe@" not in browser.get(f"{PAGE}/{send.id}.1").text
    assert scalar(ledger, "SELECT reason FROM audit WHERE action = 'reveal address'") == "they called"
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE audit::text LIKE '%%jane%%'") == 0
    reader = Browser(app, role=Role.READ)
    assert reader.post(path, {"reason": "curious"}).status_code == 403


def chosen(page: str) -> dict[str, str]:
    """What the filter form has chosen, as it would send it."""
    form = re.search(r'<form class="filter"(.*?)</form>', page, re.DOTALL)
    assert form is not None, page
    fields = dict(re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', form[1]))
    for name, options in re.findall(r'<select id="[\w-]+" name="(\w+)">(.*?)</select>', form[1], re.DOTALL):
        fields[name] = re.findall(r'<option value="([^"]*)" selected>', options)[0]
    return fields


@pytest.mark.parametrize("path", [PAGE, f"{PAGE}/list"])
def test_the_filter_form_says_what_the_address_says_and_sends_the_same(
    browser: Browser, ledger: Ledger, path: str
) -> None:
    make_failures(ledger, count=3)
    there = make_failures(
        ledger, status="failed", cause="bbbbbbbbbbbb", title="no such number", tenant="other", channel=Channel.SMS,
        provider="twilio",
    )  # fmt: skip
    asked = {"status": "failed", "channel": "sms", "tenant": "other", "provider": "twilio", "group": "bbbbbbbbbbbb",
             "send": str(there.id), "since": "24h"}  # fmt: skip
    page = browser.get(f"{path}?{urlencode(asked)}").text
    assert chosen(page) == asked
    assert "no such number" in page
    assert "Clear the filter" in page
    plain = browser.get(path).text
    assert set(chosen(plain).values()) == {""}
    assert "Clear the filter" not in plain
    sent = browser.get(f"{path}?{urlencode(chosen(plain))}")  # a browser sends the empty fields too
    assert "4 dead-lettered" not in text_of(sent)
    assert TITLE in text_of(browser.get(f"{path}?{urlencode({**chosen(plain), 'tenant': 'acme'})}"))


def test_every_list_and_every_action_of_the_page_keeps_to_its_filter(browser: Browser, ledger: Ledger) -> None:
    mine = [make_failures(ledger, status=status, cause=f"{n:012x}") for n, status in enumerate(("failed", "unsure"))]
    others = [
        make_failures(ledger, status=status, cause=f"{n:012x}", tenant="other")
        for n, status in enumerate(("failed", "unsure"))
    ]
    page = browser.get(f"{PAGE}?tenant=acme").text
    for send in mine:
        assert f"{send.id}.1" in page
    for send in others:
        assert str(send.id) not in page
    actions = re.findall(
        r'href="([^"]*(?:operations/new|failures/list|failures\.csv)[^"]*)"', page.partition("Groups")[2]
    )
    assert len(actions) > 8
    assert all("tenant=acme" in action for action in actions), actions
    unsure = text_of(browser.get(f"{PAGE}?tenant=acme&channel=sms"))
    assert "Nothing unsure matches this filter." in unsure


def test_the_filter_form_keeps_what_it_has_no_field_for(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger)
    who = "0123456789abcdef" * 2
    assert chosen(browser.get(f"{PAGE}/list?who={who}").text)["who"] == who
    assert chosen(browser.get(f"{PAGE}?by=tenant").text)["by"] == "tenant"
    assert chosen(browser.get(f"{PAGE}/list?discarded=1&status=any").text)["discarded"] == "1"
    moment = chosen(browser.get(f"{PAGE}/list?since=2026-05-01T10:00:00%2B00:00").text)["since"]
    assert moment == "2026-05-01T10:00:00+00:00"


def test_a_cause_has_its_title_wherever_it_is_told_of(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=2, title="CHES 400: Invalid Domain")
    browser.post(f"{PAGE}/groups/{CAUSE}/note", {"text": "ticket 12"})
    words = "with cause “CHES 400: Invalid Domain”"
    assert words in text_of(browser.get(f"/admin/monitoring/operations/new?kind=discard&group={CAUSE}"))
    assert words in text_of(browser.get(f"{PAGE}/list?group={CAUSE}"))
    audited = browser.get("/admin/monitoring/audit")
    assert "failures “CHES 400: Invalid Domain”" in text_of(audited)
    assert f'href="{PAGE}/groups/{CAUSE}"' in audited.text


def test_what_is_tried_again_is_listed_with_its_time_and_reason(browser: Browser, ledger: Ledger) -> None:
    assert "Nothing waits for another try." in text_of(browser.get(f"{PAGE}/retrying"))
    later, soon = make_send(ledger, count=30, status=SendStatus.SENDING), make_send(ledger, status=SendStatus.SENDING)
    put_rows(ledger, later.id, [29, 30], "retrying", due_in="20 minutes 30 seconds", attempts=2)
    put_rows(ledger, soon.id, [1], "retrying", due_in="5 minutes 30 seconds")
    put_send(ledger, soon.id, SendStatus.PAUSED)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET last_error = '451: jane.doe@example.com is busy' WHERE row_no = 29")
    page = browser.get(f"{PAGE}/retrying")
    assert re.findall(r'failures/([^"]+)">p\*\*\*@e', page.text) == [f"{soon.id}.1", f"{later.id}.29", f"{later.id}.30"]
    said = text_of(page)
    assert "in 5 min and when its send goes on 0" in said
    assert "in 20 min 2 – 451: j***@e***.com is busy" in said
    assert f'href="{PAGE}/retrying"' in browser.get(PAGE).text


def test_failed_jobs_are_listed_with_their_tenants(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, tenant="other")
    with ledger.autocommit() as connection:
        failed_jobs.record(
            connection,
            queue="ops",
            job="work_chain",
            kind="set_aside",
            send_id=send.id,
            error="begun 4 times",
            starts=4,
        )
    said = text_of(browser.get(PAGE))
    assert "work_chain ops other" in said
    assert "begun 4 times" in said


def test_a_file_of_failures_is_masked_and_harmless(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(
        ledger, addresses=["jane.doe@example.com"], detail='=HYPERLINK("x") jane.doe@example.com', tenant="=acme"
    )
    make_failures(ledger, cause="bbbbbbbbbbbb", addresses=["bob@example.com"])
    file = browser.get(f"{PAGE}.csv?group={CAUSE}")
    assert file.mimetype == "text/csv"
    lines = file.text.lstrip("\ufeff").splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"{delivery_id(send.id, 1)},j***@e***.com,'=acme,")
    assert "jane.doe" not in file.text
    assert ",=" not in file.text


@pytest.mark.parametrize(
    "query",
    ["status=nonsense", "group=x", "send=1", "channel=fax", "who=abc", "since=yesterday", "since=2026-01-01",
     "before=x", "first=0"],
)  # fmt: skip
def test_a_filter_that_says_nothing_is_told_and_reads_nothing(browser: Browser, query: str) -> None:
    answer = browser.get(f"{PAGE}/list?{query}")
    assert answer.status_code == 400
    assert "The filter does not say what is meant" in answer.text


def test_a_reader_sees_the_actions_shut_with_the_reason(app: Flask, ledger: Ledger) -> None:
    make_failures(ledger)
    page = Browser(app, role=Role.READ).get(f"{PAGE}/groups/{CAUSE}").text
    assert "operations/new?" not in page
    assert 'aria-disabled="true" title="You are signed in to read' in page


def group_row(page: str, title: str) -> str:
    rows = re.findall(r"<tr[ >](.*?)</tr>", page, re.DOTALL)
    return next(row for row in rows if 'class="group-title"' in row and title in row)
