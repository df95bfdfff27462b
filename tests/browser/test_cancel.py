"""What remains of a send is cancelled, and that is undone in time."""

from playwright.sync_api import expect

from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.support.factories import make_send, send_status


def test_a_send_is_cancelled_with_its_reason_and_undone(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_send(site_ledger, count=3, status=SendStatus.SENDING)
    page = browser_person.open(f"/admin/monitoring/sends/{send.id}")
    page.get_by_role("link", name="Cancel what remains this send").click()
    page.get_by_label("Reason").fill("the wrong list")
    page.get_by_role("button", name="Cancel 3 deliveries").click()
    expect(page.locator(".banner")).to_contain_text("Nothing of it is sent.")
    assert send_status(site_ledger, send.id) == "paused"
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".flash")).to_have_text("Undone: the send is as it was.")
    expect(page.locator(".banner")).to_have_count(0)
    assert send_status(site_ledger, send.id) == "sending"
