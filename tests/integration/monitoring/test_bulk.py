"""Bulk operations from the page: preview, confirmation, undo, stop, result; what they never take."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from shared.domain.requeue import OperationKind
from shared.domain.roles import Role
from shared.domain.states import Channel
from shared.ledger import operation_results, operations
from shared.ledger.db import Ledger
from tests.support.books import assert_books_balance
from tests.support.browser import Browser, text_of
from tests.support.factories import counts, make_tenant
from tests.support.failing import CAUSE, TITLE, age_failures, fail_again, make_failures
from tests.support.ledger_rows import one, put_rows, scalar
from tests.support.requeuing import finish, of, plan
from tests.support.waiting import wait_until

NEW = "/admin/monitoring/operations/new"
POST = "/admin/monitoring/operations"


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that confirms; where one has several values, the last."""
    form = re.search(
        r'<form method="post" action="/admin/monitoring/operations" class="confirm">(.*?)</form>', page, re.DOTALL
    )
    assert form is not None, page
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form[1]))
    fields.pop("csrf_token")
    return fields


def confirm(browser: Browser, query: str, **more: str) -> str:
    """Confirm what a preview shows; the path of the operation."""
    answer = browser.post(POST, {**form_of(browser.get(f"{NEW}?{query}").text), **more})
    assert answer.status_code == 303, text_of(answer)
    return answer.location


def let_begin(ledger: Ledger, seconds: float = 11) -> None:
    """Let so many seconds pass for the operations that are planned."""
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET run_at = run_at - %s * interval '1 second'", [seconds])


def counted(browser: Browser, words: str) -> None:
    """Wait for the snapshot that counts what was done: it may be two seconds old."""
    wait_until(lambda: words in text_of(browser.get("/admin/monitoring/failures")), what=words)


def test_a_preview_says_how_many_whose_what_is_left_and_why_and_changes_nothing(
    browser: Browser, ledger: Ledger
) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, tenant="other", status="failed")
    make_failures(ledger, count=4, status="unsure")
    said = text_of(browser.get(f"{NEW}?kind=requeue"))
    assert "Requeue 5 e-mails" in said
    assert "All dead-lettered or failed deliveries, as of" in said
    assert "acme E-mail dead-lettered 3" in said
    assert "other E-mail failed 2" in said
    assert "4 : may have been sent already" in said
    assert scalar(ledger, "SELECT count(*) FROM operation") == scalar(ledger, "SELECT count(*) FROM audit") == 0


@pytest.mark.parametrize("where", ["list", f"groups/{CAUSE}", "list?status=unsure", "list?discarded=1&status=any"])
def test_a_list_in_which_nothing_is_ticked_means_nothing(browser: Browser, ledger: Ledger, where: str) -> None:
    make_failures(ledger, count=3)
    unsure = make_failures(ledger, status="unsure")
    plan(ledger, of(make_failures(ledger)), kind=OperationKind.DISCARD)
    finish(ledger)
    form = re.search(
        rf'<form method="get" action="{NEW}">(.*?)</form>',
        browser.get(f"/admin/monitoring/failures/{where}").text,
        re.S,
    )
    assert form is not None
    hidden = "&".join(f"{k}={v}" for k, v in re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', form[1]))
    for kind in re.findall(r'name="kind" value="(\w+)"', form[1]):
        answer = browser.get(f"{NEW}?{hidden}&kind={kind}")
        assert answer.status_code == 400
        assert "Nothing is ticked" in text_of(answer)
        assert browser.get(f"{NEW}?{hidden}&kind={kind}&id={unsure.id}.1").status_code == 200


def test_a_preview_says_how_old_they_are(browser: Browser, ledger: Ledger) -> None:
    for count, age in ((1, "50 minutes"), (2, "61 minutes"), (4, "23 hours"), (8, "25 hours")):
        age_failures(ledger, make_failures(ledger, count=count).id, age)
    make_failures(ledger, status="unsure")
    said = text_of(browser.get(f"{NEW}?kind=requeue"))
    assert "Kind Deliveries Last hour 1–24 h ago Older Oldest acme E-mail dead-lettered 15 1 6 8 " in said


def test_a_group_is_requeued_and_its_result_stays(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    other = make_failures(ledger, cause="bbbbbbbbbbbb")
    path = confirm(browser, f"kind=requeue&group={CAUSE}", reason="the relay is back")
    said = text_of(browser.get(path))
    assert re.search(r"Requeueing 3 in \d+ s Undo", said)
    assert "kim" in said
    assert "the relay is back" in said
    let_begin(ledger)
    finish(ledger)
    said = text_of(browser.get(path))
    assert "State done" in said
    assert "3 requeued, 0 skipped, 0 left" in said
    assert "3 owed" in said
    assert (counts(ledger, send.id), counts(ledger, other.id)) == ({"owed": 3}, {"dead_lettered": 1})
    listed = text_of(browser.get(POST))
    assert f"Requeue all dead-lettered or failed deliveries with cause “{TITLE}”" in listed
    audited = text_of(browser.get("/admin/monitoring/audit"))
    assert f"all dead-lettered or failed deliveries with cause “{TITLE}”" in audited
    for said in (listed, audited):
        assert CAUSE not in said
    assert_books_balance(ledger, except_for=frozenset({"the counts of the minutes sum to the books"}))


def test_what_failed_again_is_counted_and_leads_to_these_rows_alone(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    path = confirm(browser, f"kind=requeue&group={CAUSE}")
    let_begin(ledger)
    finish(ledger)
    late = make_failures(ledger)
    put_rows(ledger, send.id, [1], "sent")
    fail_again(ledger, send.id, [2, 3])
    page = browser.get(path)
    assert re.search(r"What became of them 1 sent 2 dead-lettered again → view", text_of(page))
    counted(browser, "2 failed again , 1 sent")
    from_group = re.search(r'<a href="([^"]+)">2 failed again', browser.get("/admin/monitoring/failures").text)
    from_operation = re.search(r'<a href="([^"]+)" aria-label="View the 2 dead-lettered again">', page.text)
    for found in (from_group, from_operation):
        assert found is not None
        rows = browser.get(found[1].replace("&amp;", "&")).text
        assert re.findall(r'name="id" value="([^"]+)"', rows) == [f"{send.id}.2", f"{send.id}.3"]
        assert str(late.id) not in rows
    operation = path.rpartition("/")[2]
    preview = f"{NEW}?kind=requeue&operation={operation}"
    assert form_of(browser.get(preview).text)["shown"] == "2"
    confirm(browser, f"kind=requeue&status=any&id={send.id}.3")
    let_begin(ledger)
    finish(ledger)
    fail_again(ledger, send.id, [3])  # what failed once more after another requeue is that one's
    assert "1 dead-lettered again → view" in text_of(browser.get(path))
    assert form_of(browser.get(preview).text)["shown"] == "1"
    rows = browser.get(f"/admin/monitoring/failures/list?operation={operation}").text
    assert re.findall(r'name="id" value="([^"]+)"', rows) == [f"{send.id}.2"]
    groups = browser.get(f"/admin/monitoring/failures?operation={operation}").text
    assert 'data-label="Count"><span class="figure">1</span>' in groups


def test_a_preview_says_that_the_last_requeue_of_these_failed_again(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=4)
    query = f"kind=requeue&group={CAUSE}"
    assert "failed again" not in text_of(browser.get(f"{NEW}?{query}"))
    first = confirm(browser, f"{query}&first=3")
    let_begin(ledger)
    finish(ledger)
    put_rows(ledger, send.id, [1], "sent")
    fail_again(ledger, send.id, [2, 3])
    make_failures(ledger)
    page = browser.get(f"{NEW}?{query}")
    told = (
        "2 of these were requeued before and failed again. The last requeue, kim’s just now , took 3: 2 of these failed"
    )
    assert told in text_of(page)
    assert f'<a href="{first}">kim’s' in page.text
    assert "failed again" not in text_of(browser.get(f"{NEW}?kind=discard&group={CAUSE}"))
    confirm(browser, f"kind=requeue&status=any&id={send.id}.3")
    let_begin(ledger)
    finish(ledger)
    fail_again(ledger, send.id, [3])
    assert "took 1: 1 of these failed again" in text_of(browser.get(f"{NEW}?{query}"))


def test_an_operation_on_a_group_leads_to_it_under_its_filter(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=2)
    group = f"/admin/monitoring/failures/groups/{CAUSE}"
    page = browser.get(confirm(browser, f"kind=requeue&group={CAUSE}&first=1")).text
    assert f'<a href="{group}">the 1 newest' in page
    page = browser.get(confirm(browser, f"kind=requeue&group={CAUSE}&tenant=acme&channel=email")).text
    assert f'<a href="{group}?tenant=acme&amp;channel=email">all dead-lettered or failed e-mails of tenant' in page


def test_what_was_discarded_or_sent_is_told_by_its_operation_too(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=2)
    path = confirm(browser, "kind=discard&first=1", reason="a typo of theirs")
    let_begin(ledger)
    finish(ledger)
    page = browser.get(path)
    assert "1 discarded → view" in text_of(page)
    found = re.search(r'<a href="([^"]+)" aria-label="View the 1 discarded">', page.text)
    assert found is not None
    assert browser.get(found[1].replace("&amp;", "&")).text.count('name="id" value="') == 1


def test_a_double_click_is_one_operation(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    form = form_of(browser.get(f"{NEW}?kind=requeue").text)
    first, second = browser.post(POST, form), browser.post(POST, form)
    assert first.location == second.location
    assert scalar(ledger, "SELECT count(*) FROM operation") == 1
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE action = 'requeue'") == 1


def test_what_fails_after_the_preview_is_never_swept_in(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    form = form_of(browser.get(f"{NEW}?kind=requeue").text)
    make_failures(ledger, count=2)
    browser.post(POST, form)
    assert one(ledger, "SELECT total FROM operation") == {"total": 3}


def test_a_preview_of_tomorrow_is_refused(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger)
    form = form_of(browser.get(f"{NEW}?kind=requeue").text)
    form["as_of"] = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert browser.post(POST, form).status_code == 400
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0


def test_more_than_the_preview_showed_is_refused(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    form = form_of(browser.get(f"{NEW}?kind=requeue").text)
    answer = browser.post(POST, {**form, "shown": "2"})
    assert "There are more by now" in answer.text
    assert (
        scalar(ledger, "SELECT count(*) FROM operation") == scalar(ledger, "SELECT count(*) FROM operation_item") == 0
    )


def test_a_reason_is_needed_for_a_discard_and_for_more_than_a_hundred(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=101)
    for kind in ("requeue", "discard"):
        query = f"kind={kind}" if kind == "requeue" else "kind=discard&first=1"
        answer = browser.post(POST, form_of(browser.get(f"{NEW}?{query}").text))
        assert "Say why" in answer.text
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0


@pytest.mark.parametrize("typed", ["", "1000", "yes"])
def test_more_than_a_thousand_are_typed(browser: Browser, ledger: Ledger, typed: str) -> None:
    make_failures(ledger, count=1_001)
    page = browser.get(f"{NEW}?kind=requeue").text
    assert "Type 1001 to confirm" in page
    form = {**form_of(page), "reason": "outage over"}
    assert "Type the number 1001" in browser.post(POST, {**form, "typed": typed}).text
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0
    assert browser.post(POST, {**form, "typed": "1,001"}).status_code == 303
    assert one(ledger, "SELECT total FROM operation") == {"total": 1_001}


def test_a_thousand_need_no_typing(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=1_000)
    confirm(browser, "kind=requeue", reason="outage over")


def test_an_operation_that_no_worker_takes_up_says_so(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    path = confirm(browser, "kind=requeue")
    let_begin(ledger, 11)
    said = text_of(browser.get(path))
    assert "Requeueing 3 at any moment" in said
    assert "no worker" not in said
    let_begin(ledger, 60)
    said = text_of(browser.get(path))
    assert "Requeueing 3 as soon as a worker takes it up" in said
    assert "begins soon – no worker has been at it for 1 min : look at queue ops on System" in said
    finish(ledger)
    assert "no worker" not in text_of(browser.get(path))


def test_it_is_undone_after_nine_seconds_and_not_after_eleven(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    path = confirm(browser, "kind=requeue")
    let_begin(ledger, 9)
    finish(ledger)
    assert "Undone: nothing was done." in browser.post(f"{path}/undo", follow=True).text
    assert counts(ledger, send.id) == {"dead_lettered": 3}
    path = confirm(browser, "kind=requeue")
    let_begin(ledger, 11)
    finish(ledger)
    assert "too late to undo" in browser.post(f"{path}/undo", follow=True).text
    assert counts(ledger, send.id) == {"owed": 3}


def test_a_stop_leaves_the_rest_and_says_who_and_why(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    path = confirm(browser, "kind=requeue")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET status = 'running', started_at = now()")
    said = text_of(browser.post(f"{path}/stop", {"reason": "wrong group"}, follow=True))
    assert "State stopped by kim: wrong group" in said
    assert "3 left as they were" in said
    assert counts(ledger, send.id) == {"dead_lettered": 3}
    assert "over already" in browser.post(f"{path}/stop", follow=True).text


def test_unsure_ones_need_the_tick_and_are_never_part_of_all(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger)
    send = make_failures(ledger, count=2, status="unsure", cause="cccccccccccc")
    for query in ("kind=requeue", "kind=requeue&status=any"):
        form = form_of(browser.get(f"{NEW}?{query}").text)
        assert form["shown"] == "1"
    page = browser.get(f"{NEW}?kind=requeue&status=unsure").text
    assert "I accept possible duplicates" in page
    form = form_of(page)
    assert "tick that you accept" in browser.post(POST, form).text
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0
    browser.post(POST, {**form, "accepts_duplicates": "yes"})
    let_begin(ledger)
    finish(ledger)
    assert counts(ledger, send.id) == {"owed": 2}
    assert scalar(ledger, "SELECT result FROM audit WHERE action = 'requeue'") == "accepted possible duplicates"


def test_what_its_provider_reported_as_taken_is_named_and_left_without_the_tick(
    browser: Browser, ledger: Ledger
) -> None:
    send = make_failures(ledger, count=2)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET receipt_status = 'delivered', last_attempt_at = now() WHERE row_no = 1")
        connection.execute(
            "INSERT INTO receipt (send_id, row_no, epoch, provider, status, applied_at)"
            " VALUES (%s, 1, 0, 'twilio', 'delivered', now())",
            [send.id],
        )
    page = browser.get(f"{NEW}?kind=requeue").text
    assert (form_of(page)["shown"], "taken after all" in page) == ("1", True)
    assert "I accept possible duplicates" not in page
    page = browser.get(f"{NEW}?kind=requeue&status=any&id={send.id}.1").text
    assert "1 of these was taken after all" in " ".join(re.sub("<[^>]+>", "", page).split())
    browser.post(POST, form_of(page))
    assert scalar(ledger, "SELECT count(*) FROM operation") == 0
    browser.post(POST, {**form_of(page), "accepts_duplicates": "yes"})
    let_begin(ledger)
    finish(ledger)
    assert counts(ledger, send.id) == {"dead_lettered": 1, "owed": 1}


def test_ticked_deliveries_are_taken_and_no_others(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=4)
    confirm(browser, f"kind=requeue&status=any&id={send.id}.2&id={send.id}.4")
    # The form of one page has several ids; a dict of its fields keeps the last.
    items = {"id": [f"{send.id}.2", f"{send.id}.4"]}
    page = browser.get(f"{NEW}?kind=requeue&status=any&id={send.id}.2&id={send.id}.4").text
    assert page.count(f'name="id" value="{send.id}.') == len(items["id"])


def test_the_filter_of_the_page_is_the_set(browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger, count=3)
    make_failures(ledger, count=2, tenant="other", channel=Channel.SMS, provider="twilio", cause="bbbbbbbbbbbb")
    for query, shown in (
        ("tenant=other", "2"), ("channel=email", "3"), ("provider=twilio", "2"), (f"group={CAUSE}", "3"),
        ("status=dead_lettered", "5"), ("first=1", "1"),
    ):  # fmt: skip
        page = browser.get(f"{NEW}?kind=requeue&{query}").text
        assert form_of(page)["shown"] == shown, query
        name, value = query.split("=")
        assert form_of(page)[name] == value


def test_a_discard_hides_shows_apart_and_is_restored(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    confirm(browser, f"kind=discard&group={CAUSE}", reason="a typo of theirs")
    let_begin(ledger)
    finish(ledger)
    counted(browser, "0 dead-lettered")
    assert "3 discarded" in text_of(browser.get("/admin/monitoring/failures"))
    preview = text_of(browser.get(f"{NEW}?kind=requeue&group={CAUSE}"))
    assert "There is nothing to requeue." in preview
    assert "3 : discarded" in preview
    listed = text_of(browser.get("/admin/monitoring/failures/list?status=any&discarded=1"))
    assert listed.count("p***@e***.com") == 3
    assert counts(ledger, send.id) == {"dead_lettered": 3}
    confirm(browser, f"kind=restore&status=any&group={CAUSE}")
    let_begin(ledger)
    finish(ledger)
    counted(browser, "3 dead-lettered")
    assert scalar(ledger, "SELECT array_agg(action ORDER BY id) FROM audit WHERE action NOT LIKE 'd%%n%%d'") == [
        "discard", "discard done", "restore", "restore done",
    ]  # fmt: skip


def test_a_provider_that_takes_nothing_is_said_before(make_app: object, ledger: Ledger, redis_url: str) -> None:
    make_failures(ledger)
    browser = Browser(make_app(redis_url=redis_url, email_provider="sandbox"))  # type: ignore[operator]
    assert "sandbox takes messages" in text_of(browser.get(f"{NEW}?kind=requeue"))
    with ledger.autocommit() as connection:
        make_tenant(connection)
        connection.execute(
            "INSERT INTO provider_hold (id, provider, credential, operator, reason)"
            " VALUES (gen_random_uuid(), 'sandbox', 'x', 'lee', 'maintenance')"
        )
    assert "sandbox: an operator holds it: these will wait" in text_of(browser.get(f"{NEW}?kind=requeue"))


def test_a_reader_may_look_and_not_do(app: Flask, browser: Browser, ledger: Ledger) -> None:
    make_failures(ledger)
    reader = Browser(app, role=Role.READ, name="lee")
    page = reader.get(f"{NEW}?kind=requeue").text
    assert 'type="submit" disabled title="You are signed in to read' in page
    assert reader.post(POST, form_of(page)).status_code == 403
    path = confirm(browser, "kind=requeue")
    assert reader.get(path).status_code == 200
    for action in ("undo", "stop"):
        assert reader.post(f"{path}/{action}").status_code == 403
    with ledger.transaction() as connection:
        assert operations.newest(connection, limit=1)[0].status == "scheduled"


def test_the_result_of_a_large_one_is_counted_for_the_page(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    path = confirm(browser, f"kind=requeue&group={CAUSE}")
    let_begin(ledger)
    finish(ledger)
    with ledger.autocommit() as connection:
        assert operation_results.to_count(connection, limit=1) == []
        connection.execute("UPDATE operation SET total = 6000, done = 6000")
        said = text_of(browser.get(path))
        assert ("Count it" in said, "3 owed" in said) == (True, False)
        [id_] = operation_results.to_count(connection, limit=9)
        operation_results.note_count(connection, id_)
    put_rows(ledger, send.id, [1, 2, 3], "sent")
    assert re.search(r"3 owed as of [-\d]+ [:\d]+ UTC Count it as of now", text_of(browser.get(path)))
    assert "3 sent" in text_of(browser.get(f"{path}?count=1"))


@pytest.mark.parametrize(
    ("ended", "result", "again", "for_good"),
    [
        ("10 minutes", "6 minutes", True, False),
        ("10 minutes", "4 minutes", False, False),
        ("30 seconds", "30 seconds", False, False),
        ("25 hours", "2 hours", False, True),
        ("10 minutes", None, True, False),
        ("25 hours", None, False, True),
    ],
)
def test_a_large_result_is_counted_more_seldom_the_longer_it_is_over_and_then_for_good(
    browser: Browser, ledger: Ledger, ended: str, result: str | None, again: bool, for_good: bool
) -> None:
    make_failures(ledger)
    confirm(browser, f"kind=requeue&group={CAUSE}")
    let_begin(ledger)
    finish(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET total = 6000, done = 6000, ended_at = now() - %s::interval", [ended])
        if result:
            connection.execute(
                "UPDATE operation SET result = jsonb_build_object('meanwhile',"
                " jsonb_build_object('at', now() - %s::interval, 'outcome', '{}'::jsonb))",
                [result],
            )
        assert bool(operation_results.to_count(connection, limit=1)) is again
        assert operation_results.to_empty(connection, days=0, run=1, limit=1) == []
        found = operation_results.to_note(connection, run=1, limit=1)
        assert bool(found) is for_good
        for id_ in found:
            operation_results.note(connection, id_)
            operation_results.note_count(connection, id_)  # too late: what is written down for good stays
            assert operation_results.to_note(connection, run=1, limit=1) == []
            assert operation_results.to_empty(connection, days=0, run=1, limit=1) == [id_]
            assert operation_results.counted(connection, id_).counts == {"owed": 1}


def test_operations_are_listed_page_by_page_each_once(browser: Browser, ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO operation (id, kind, status, operator, filter, as_of, run_at, total, created_at, ended_at)"
            " SELECT gen_random_uuid(), 'requeue', 'done', 'kim', '{\"words\": \"these\"}', now(), now(), 0,"
            " date_trunc('day', now()) - n / 40 * interval '1 hour', now() FROM generate_series(1, 120) AS n"
        )
        ids = [str(id_) for (id_,) in connection.execute("SELECT id FROM operation ORDER BY created_at DESC, id DESC")]
    seen: list[str] = []
    path: str | None = POST
    while path:
        page = browser.get(path).text
        seen += re.findall(r'<th scope="row"[^>]*><a href="/admin/monitoring/operations/([^"]+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = older[1] if older else None
    assert seen == ids
    assert browser.get(f"{POST}?before=nonsense").status_code == 400


def test_an_operation_nobody_planned_is_not_found(browser: Browser) -> None:
    path = "/admin/monitoring/operations/01a2163a-6f0e-7b32-8c1d-0a5b1c2d3e4f"
    assert browser.get(path).status_code == 404
    assert browser.get(f"{NEW}?kind=resend").status_code == 400
