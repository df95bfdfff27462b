"""The audit's page and file: what is shown, in which order, and what a filter leaves."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from admin.monitoring import audit as audit_page
from shared.domain.ids import delivery_id
from shared.ledger import audit
from shared.ledger.db import Ledger
from tests.support.browser import Browser, text_of
from tests.support.digests import make_channel
from tests.support.failing import make_failures

PATH = "/admin/monitoring/audit"
TODAY = datetime.now(UTC).date()


def note(ledger: Ledger, *, days_ago: int = 0, operator: str = "kim", action: str = "hold", **more: object) -> None:
    facts = {"target": "provider ches", "result": "held", **more}
    with ledger.transaction() as connection, audit.caused_by(role="admin", request_id="r-1"):
        audit.record(connection, operator=operator, action=action, **facts)  # type: ignore[arg-type]
        connection.execute(
            "UPDATE audit SET at = at - %s * interval '1 day' WHERE id = (SELECT max(id) FROM audit)", (days_ago,)
        )


def rows(text: str) -> list[list[str]]:
    body = re.search(r"<tbody>(.*)</tbody>", text, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in (body[1] if body else "").split("</tr>")]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells if row]


def test_entries_show_all_that_is_known_newest_first(browser: Browser, ledger: Ledger) -> None:
    note(ledger, reason="they asked <b>us</b>", count=12)
    operation = uuid4()
    note(ledger, operator="robin", action="stop", target=f"operation {operation}", result="stopped")
    page = browser.get(PATH)

    found = rows(page.text)
    assert [row[1:] for row in found] == [
        ["robin", "admin", "stop", f"operation {str(operation)[:8]}", "", "stopped", "", "r-1"],
        ["kim", "admin", "hold", "provider ches", "12", "held", "they asked &lt;b&gt;us&lt;/b&gt;", "r-1"],
    ]
    assert f'href="/admin/monitoring/operations/{operation}"' in page.text


def test_what_a_deed_was_done_to_is_a_link_to_its_page(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=1)
    make_channel(ledger, "https://example.com/hook")
    delivery = delivery_id(send.id, 1)
    pages = {
        f"send {send.id}": f"/admin/monitoring/sends/{send.id}",
        f"delivery {delivery}": f"/admin/monitoring/failures/{delivery}",
        "digest channel ops": "/admin/monitoring/digests/history?channel=ops",
        "queue email_bulk": "/admin/monitoring/system#queues",
        "provider sandbox:sandbox": "/admin/monitoring/system#providers",
    }
    for target in (*pages, "pages", "POST /admin/monitoring/failures"):
        note(ledger, target=target)
    links = dict(re.findall(r'<td data-label="To what"><a href="([^"]+)" title="([^"]+)"', browser.get(PATH).text))
    assert {title: href for href, title in links.items()} == pages
    for href in pages.values():
        assert browser.get(href.partition("#")[0]).status_code == 200, href


def test_an_address_in_a_reason_is_masked_before_it_is_kept(browser: Browser, ledger: Ledger) -> None:
    note(ledger, reason="jane.doe@example.com complained")
    assert "jane" not in browser.get(PATH).text
    with ledger.transaction() as connection:
        [entry] = audit.newest(connection, limit=1)
    assert entry.reason == "j***@e***.com complained"


def test_filters_leave_what_fits_and_can_be_cleared(browser: Browser, ledger: Ledger) -> None:
    note(ledger, days_ago=3)
    note(ledger, days_ago=2, operator="robin")
    note(ledger, days_ago=1, action="release")
    note(ledger)

    def count(query: str) -> int:
        return len(rows(browser.get(f"{PATH}?{query}").text))

    day = [TODAY - timedelta(days=days) for days in range(4)]
    assert count("") == 4
    assert count("operator=robin") == 1
    assert count("operator=kim&action=hold") == 2
    assert count(f"from={day[2]}&to={day[1]}") == 2
    assert count(f"to={day[3]}") == 1
    nothing = browser.get(f"{PATH}?operator=nobody-else")
    assert "No entry fits." in text_of(nothing)
    assert "Clear the filter" in text_of(nothing)


def test_an_audit_without_entries_says_what_will_be_there(browser: Browser) -> None:
    assert "Nobody has done anything yet." in text_of(browser.get(PATH))


def test_pages_follow_each_other_and_keep_the_filter(browser: Browser, ledger: Ledger) -> None:
    for number in range(audit_page.PAGE_SIZE * 2 + 1):
        note(ledger, target=f"n{number}")
        note(ledger, operator="robin")
    seen: list[str] = []
    path: str | None = f"{PATH}?operator=kim"
    while path:
        text = browser.get(path).text
        seen += [row[4] for row in rows(text)]
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&") if following else None

    assert seen == [f"n{number}" for number in reversed(range(audit_page.PAGE_SIZE * 2 + 1))]


@pytest.mark.parametrize("query", ["from=yesterday", "to=2026-13-40", "before=x", "before=-1", f"before={2**70}",
                                   "operator=%00", "from=0001-01-01&to=9999-12-31"])  # fmt: skip
def test_a_query_that_makes_no_sense_is_no_error(browser: Browser, ledger: Ledger, query: str) -> None:
    note(ledger)
    answer = browser.get(f"{PATH}?{query}")
    assert answer.status_code == 200
    assert ("is not a day" in answer.text) == query.startswith(("from", "to"))


def test_the_file_has_what_the_filter_leaves_and_no_formula(browser: Browser, ledger: Ledger) -> None:
    words = "all failed deliveries of send 7, to jane.doe@example.com"
    note(ledger, reason="=HYPERLINK(1)", detail={"filter": {"words": words}})
    note(ledger, operator="robin", reason="told jane.doe@example.com")
    answer = browser.get(f"{PATH}.csv?operator=kim")

    assert answer.mimetype == "text/csv"
    assert f"audit-{TODAY}.csv" in answer.headers["Content-Disposition"]
    lines = list(csv.reader(io.StringIO(answer.text.removeprefix("\ufeff"))))
    assert lines[0][:4] == ["when", "operator", "role", "action"]
    assert lines[0][-1] == "filter"
    assert [line[1:] for line in lines[1:]] == [
        [
            "kim",
            "admin",
            "hold",
            "provider ches",
            "",
            "'=HYPERLINK(1)",
            "held",
            "r-1",
            "",
            "all failed deliveries of send 7, to j***@e***.com",
        ]
    ]
    assert "jane.doe" not in browser.get(f"{PATH}.csv").text


def test_a_long_file_is_read_in_steps(browser: Browser, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO audit (operator, action, target, result)"
            " SELECT 'kim', 'hold', 'n' || n, 'held' FROM generate_series(1, 2500) AS n"
        )
    lines = browser.get(f"{PATH}.csv").text.splitlines()
    assert len(lines) == 2501
    assert [lines[1].split(",")[4], lines[-1].split(",")[4]] == ["n2500", "n1"]


def test_a_million_entries_are_no_reason_to_wait(browser: Browser, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO audit (operator, action, target, result)"
            " SELECT 'o' || n % 50, 'hold', 'n', 'held' FROM generate_series(1, 200000) AS n"
        )
        connection.execute("INSERT INTO audit (operator, action, target, result) VALUES ('rare', 'hold', 'n', 'held')")
        plan = str(
            connection.execute(
                "EXPLAIN SELECT id FROM audit WHERE operator = 'rare' ORDER BY id DESC LIMIT 50"
            ).fetchall()
        )
    assert "Seq Scan" not in plan
    assert len(rows(browser.get(f"{PATH}?operator=rare").text)) == 1
