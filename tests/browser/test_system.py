"""The System page in a browser: a provider held and released, a queue paused and resumed, each seen at once."""

from playwright.sync_api import Page, expect

from shared.domain.states import SendStatus
from shared.ledger import pauses, providers
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.support.factories import make_send

PATH = "/admin/monitoring/system"


def row(page: Page, panel: str, name: str) -> str:
    return f"#{panel} tr:has(th:has-text('{name}'))"


def test_a_provider_is_held_with_a_reason_and_released_again(browser_person: Person, site_ledger: Ledger) -> None:
    make_send(site_ledger, count=30, status=SendStatus.SENDING)
    page = browser_person.open(PATH)
    expect(page.locator(row(page, "queues", "email_bulk"))).to_contain_text("30")
    page.get_by_role("link", name="Hold sandbox").click()
    expect(page.get_by_role("heading", name="Hold provider sandbox")).to_be_visible()
    expect(page.get_by_text("30 deliveries are due for it now")).to_be_visible()
    page.get_by_role("button", name="Hold sandbox").click()
    expect(page.get_by_role("heading", name="Hold provider sandbox")).to_be_visible()  # the browser asks for the reason

    page.get_by_label("Reason").fill("they asked us to stop until noon")
    page.get_by_role("button", name="Hold sandbox").click()
    expect(page.locator(".flash")).to_contain_text("sandbox: held.")
    expect(page.locator(row(page, "providers", "sandbox"))).to_contain_text("they asked us to stop until noon")
    expect(page.locator("[data-verdict]")).to_contain_text("held by kim")
    with site_ledger.transaction() as connection:
        assert [hold.operator for hold in providers.holds(connection)] == ["kim"]

    page.get_by_role("link", name="Release sandbox").click()
    page.get_by_role("button", name="Release sandbox").click()
    expect(page.locator(".flash")).to_contain_text("sandbox: released.")
    expect(page.locator(row(page, "providers", "sandbox"))).to_contain_text("closed")
    with site_ledger.transaction() as connection:
        assert providers.holds(connection) == []


def test_a_queue_is_paused_and_resumed_and_others_see_it_without_reload(
    browser_person: Person, site_ledger: Ledger
) -> None:
    page = browser_person.open(PATH)
    other = page.context.new_page()
    other.goto(f"{browser_person.base}{PATH}")
    expect(other.locator("[data-live]")).to_contain_text("Live")

    page.get_by_role("link", name="Pause email_bulk").click()
    page.get_by_label("Reason").fill("the relay is being moved")
    page.get_by_role("button", name="Pause email_bulk").click()
    expect(page.locator(row(page, "queues", "email_bulk"))).to_contain_text("paused")
    expect(other.locator(row(other, "queues", "email_bulk"))).to_contain_text("the relay is being moved")
    with site_ledger.transaction() as connection:
        assert list(pauses.paused(connection)) == ["email_bulk"]

    page.get_by_role("link", name="Resume email_bulk").click()
    page.get_by_role("button", name="Resume email_bulk").click()
    expect(page.locator(".flash")).to_contain_text("Queue email_bulk: resumed.")
    expect(other.locator(row(other, "queues", "email_bulk"))).not_to_contain_text("paused")


def test_leaving_it_as_it_is_changes_nothing(browser_person: Person, site_ledger: Ledger) -> None:
    page = browser_person.open(f"{PATH}/queues/sms/pause")
    page.get_by_label("Reason").fill("on second thoughts")
    page.get_by_role("link", name="Leave it as it is").click()
    expect(page.locator("#queues")).to_be_visible()
    with site_ledger.transaction() as connection:
        assert pauses.paused(connection) == {}
