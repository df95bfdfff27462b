"""What a person does on the Failures pages: a cause is requeued, undone, stopped; nothing moves under their hands."""

import re

from playwright.sync_api import expect

from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.support.factories import counts
from tests.support.failing import TITLE, make_failures
from tests.support.ledger_rows import scalar


def test_a_group_is_requeued_from_its_row_and_undone(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_failures(site_ledger, count=3)
    page = browser_person.open("/admin/monitoring/failures")
    page.get_by_role("link", name=f"Requeue: {TITLE}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Requeue 3 e-mails")
    page.get_by_label("Why (if you like)").fill("the relay is back")
    page.get_by_role("button", name="Requeue 3 e-mails").click()
    expect(page.locator(".banner")).to_contain_text(re.compile(r"Requeueing 3 in \d+ s"))
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".flash")).to_have_text("Undone: nothing was done.")
    expect(page.locator("#operation .state")).to_have_text("undone")
    assert counts(site_ledger, send.id) == {"dead_lettered": 3}
    assert scalar(site_ledger, "SELECT count(*) FROM operation") == 1


def test_some_are_ticked_and_discarded(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=4, addresses=[f"{name}@example.com" for name in ("ada", "bob", "cid", "dan")])
    page = browser_person.open("/admin/monitoring/failures/list")
    page.get_by_role("checkbox", name="Select a***@e***.com").check()
    page.get_by_role("checkbox", name="Select d***@e***.com").check()
    page.get_by_role("button", name="Discard selected…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Discard 2 e-mails")
    page.get_by_label("Why").fill("typos")
    page.get_by_role("button", name="Discard 2 e-mails").click()
    expect(page.locator(".banner")).to_contain_text("Discarding 2 in")
    assert scalar(site_ledger, "SELECT array_agg(row_no ORDER BY row_no) FROM operation_item") == [1, 4]


def test_a_recipient_is_found_and_the_address_is_in_no_address_bar(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, addresses=["jane.doe@example.com"])
    page = browser_person.open("/admin/monitoring/failures")
    page.get_by_label(re.compile("^Find a recipient")).fill("Jane.Doe@example.com")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("link", name="j***@e***.com")).to_have_count(1)
    assert "jane" not in page.url
    assert "jane" not in page.content().lower()
