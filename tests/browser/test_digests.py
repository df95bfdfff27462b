"""A digest channel from its form to being switched off, before a browser."""

import re

from playwright.sync_api import expect

from shared.ledger import digest_runs
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.browser.pages import dead_letters
from tests.support.factories import make_tenant
from tests.support.ledger_rows import scalar


def test_a_channel_is_added_tried_edited_and_disabled(browser_person: Person, site_ledger: Ledger) -> None:
    with site_ledger.transaction() as connection:
        make_tenant(connection, "acme")
    page = browser_person.open("/admin/monitoring/digests")
    page.get_by_role("link", name="Add a channel").click()
    page.get_by_label("What it speaks").select_option("webhook")
    page.get_by_role("button", name="Next").click()
    page.get_by_label("Name").fill("ops")
    page.get_by_label("Address of the endpoint").fill("https://hooks.example.com/secret-part")
    page.get_by_role("button", name="Add the channel").click()
    expect(page.locator("#secret")).to_have_text(re.compile("whsec_.+"))

    page.get_by_role("link", name="Send a test").click()
    page.get_by_role("button", name="Test ops").click()
    expect(page.locator("#digest_run")).to_contain_text("waits for a worker")
    with site_ledger.transaction() as connection:
        row = connection.execute("SELECT id FROM digest_run").fetchone()
        assert row is not None
        assert digest_runs.begin(connection, row[0], worker="w")[0]
        result = {"accepted": False, "answer": "HTTP 404: gone", "means": "configuration", "tries": 1, "why": None}
        digest_runs.end(connection, row[0], result=result)
    page.reload()
    expect(page.locator("#digest_run")).to_contain_text("HTTP 404: gone")

    page = browser_person.open("/admin/monitoring/digests")
    channel = page.get_by_role("row").filter(has_text="ops")
    channel.get_by_role("link", name="Edit ops").click()
    page.get_by_label("The mildest").select_option("high")
    page.get_by_label("Tries before it is dead-lettered").fill("3")
    page.get_by_role("button", name="Change ops").click()
    page = browser_person.open("/admin/monitoring/digests")
    expect(channel).to_contain_text("all kinds, high and above")

    channel.get_by_role("link", name="Disable ops").click()
    page.get_by_label("Reason").fill("it moves")
    page.get_by_role("button", name="Disable ops").click()
    page = browser_person.open("/admin/monitoring/digests")
    expect(channel).to_contain_text("disabled")
    assert "secret-part" not in page.content()


def test_a_requeue_of_dead_letters_is_undone(browser_person: Person, site_ledger: Ledger) -> None:
    page = browser_person.open(f"{dead_letters(site_ledger)}/requeue")
    page.get_by_role("button", name="Requeue 1 notification").click()
    expect(page.locator(".banner")).to_contain_text("Requeueing 1")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".flash")).to_have_text("Undone: nothing was done.")
    expect(page.locator("#operation")).to_contain_text("undone by kim")
    assert scalar(site_ledger, "SELECT count(*) FROM notification WHERE status = 'dead_lettered'") == 1
