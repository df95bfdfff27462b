"""The Overview and the page of a send, before a browser."""

from uuid import UUID

from playwright.sync_api import expect

from shared.domain.states import DeliveryStatus, SendStatus
from shared.jobs import Jobs, make_broker
from shared.ledger import sends
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.browser.pages import a_send, busy_hours
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import make_send, send_status
from tests.support.ledger_rows import put_rows
from tests.support.processes import ProcessStarter
from tests.support.waiting import wait_until


def test_a_send_is_seen_moving_without_a_reload(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_send(site_ledger, count=100, status=SendStatus.SENDING)
    claim, rows = (hand := Hand(site_ledger)).take(send)
    page = browser_person.open("/admin/monitoring")
    row = page.get_by_role("row").filter(has=page.locator(f"a[href$='{send.id}']"))
    expect(row).to_contain_text("0 %")
    hand.record(claim, *(ended(each, DeliveryStatus.SENT) for each in rows[:60]))
    page.keyboard.press("r")
    expect(row).to_contain_text("60 %")
    expect(page.locator("#last_hour")).to_contain_text("60")


def test_what_a_worker_does_rings_and_is_seen_without_anybody_asking(
    browser_person: Person, site_ledger: Ledger, site_process: ProcessStarter, site_stores: dict[str, str]
) -> None:
    page = browser_person.open("/admin/monitoring")
    page.evaluate(
        "() => { window.heard = []; new EventSource('/admin/monitoring/queues/events').onmessage ="
        " (event) => window.heard.push(...JSON.parse(event.data).changed) }"
    )
    send = make_send(site_ledger, count=777)
    jobs = Jobs(make_broker(site_stores["REDIS_URL"], namespace="site", heartbeat_timeout_ms=20_000))
    jobs.ingest(send.id)
    jobs.broker.close()
    site_process(
        ["python", "-m", "workers", "--queues", "ingest", "email_bulk", "--threads", "2"],
        env={"EMAIL_PROVIDER": "sandbox", "EMAIL_FROM": "Tidings <tidings@example.com>"},
        ready="ready for action",
        timeout=90.0,
        name="worker",
    )
    expect(page.locator("#last_hour")).to_contain_text("777")
    wait_until(lambda: page.evaluate("window.heard.includes('last_hour')"), timeout=30)


def test_the_first_screen_holds_everything_down_to_the_sends(browser_person: Person, site_ledger: Ledger) -> None:
    make_send(site_ledger, count=100, status=SendStatus.SENDING)
    busy_hours(site_ledger)
    page = browser_person.open("/admin/monitoring")
    assert page.viewport_size == {"width": 1280, "height": 800}
    box = page.locator("#sends tbody tr").first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 800


def test_a_pill_filters_and_a_send_is_paused_with_a_reason(browser_person: Person, site_ledger: Ledger) -> None:
    page = browser_person.open(a_send(site_ledger))
    page.get_by_role("link", name="Failed 7").click()
    expect(page.locator("#recipients tbody tr")).to_have_count(7)
    page.get_by_role("link", name="Pause this send").click()
    page.get_by_label("Reason").fill("the wrong list")
    page.get_by_role("button", name="Pause this send").click()
    expect(page.locator("#send_figures")).to_contain_text("paused")
    expect(page.locator("#send_events")).to_contain_text("kim: pause send")
    with site_ledger.autocommit() as connection:
        row = connection.execute("SELECT id FROM send").fetchone()
    assert row is not None
    assert send_status(site_ledger, row[0]) == "paused"


def test_a_paused_send_goes_on_and_a_cancel_asks_and_is_undone(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_send(site_ledger, count=30, status=SendStatus.SENDING)
    with site_ledger.transaction() as connection:
        [(tenant_id,)] = connection.execute("SELECT tenant_id FROM send").fetchall()
        sends.pause(connection, tenant_id=tenant_id, send_id=send.id, reason="the wrong list", operator="ann")
    page = browser_person.open(f"/admin/monitoring/sends/{send.id}")
    expect(page.locator("#send_figures")).to_contain_text("ann: the wrong list")
    page.get_by_role("link", name="Resume this send").click()
    expect(page.get_by_text("It was paused: ann: the wrong list.")).to_be_visible()
    page.get_by_role("button", name="Resume this send").click()
    expect(page.locator(".flash")).to_contain_text("The send goes on.")
    expect(page.locator("#send_events")).to_contain_text("kim: resume send")
    assert send_status(site_ledger, send.id) == "sending"

    page.get_by_role("link", name="Cancel what remains").click()
    expect(page.get_by_text("30 deliveries are not sent.")).to_be_visible()
    page.get_by_role("link", name="Leave it as it is").click()
    expect(page.locator("#send_figures")).to_be_visible()
    assert send_status(site_ledger, send.id) == "sending"

    page.get_by_role("link", name="Cancel what remains").click()
    page.get_by_role("button", name="Cancel 30 deliveries").click()  # the browser asks for the reason
    assert send_status(site_ledger, send.id) == "sending"
    page.get_by_label("Reason").fill("sent last week already")
    page.get_by_role("button", name="Cancel 30 deliveries").click()
    expect(page.locator(".flash")).to_contain_text("The send is stopped.")
    expect(page.locator(".banner")).to_contain_text("Cancelled for good")
    expect(page.locator("#send_events")).to_contain_text("sent last week already")
    expect(page.get_by_role("link", name="this send")).to_have_count(0)
    assert send_status(site_ledger, send.id) == "paused"

    page.locator(".banner").get_by_role("button", name="Undo").click()
    expect(page.locator(".flash")).to_have_text("Undone: the send is as it was.")
    expect(page.locator(".banner")).to_have_count(0)
    assert send_status(site_ledger, send.id) == "sending"


def test_for_whom_a_send_is_stays_in_sight_beside_a_long_name(browser_person: Person, site_ledger: Ledger) -> None:
    make_send(site_ledger, count=100, status=SendStatus.SENDING)
    name = "Reminder of the yearly inspection of heating systems in the northern districts"
    with site_ledger.autocommit() as connection:
        connection.execute("UPDATE send SET name = %s", [name])
        connection.execute("UPDATE tenant SET name = 'city-housing'")
    page = browser_person.open("/admin/monitoring")
    cell, tenant = page.locator("#sends .send-name"), page.locator("#sends .send-name .note")
    expect(tenant).to_have_text("city-housing")
    whole, part = cell.bounding_box(), tenant.bounding_box()
    assert whole is not None
    assert part is not None
    assert part["x"] + part["width"] <= whole["x"] + whole["width"]
    assert tenant.evaluate("note => note.scrollWidth <= note.clientWidth")
    expect(page.get_by_title(name)).to_be_visible()


def test_recipients_that_were_read_before_the_figures_moved_say_so(browser_person: Person, site_ledger: Ledger) -> None:
    path = a_send(site_ledger)
    page = browser_person.open(path)
    expect(page.locator("#recipients .as-of")).to_contain_text("look again")
    put_rows(site_ledger, UUID(path.rpartition("/")[2]), [84, 85], "sent")
    page.keyboard.press("r")
    expect(page.locator("#recipients .as-of")).to_contain_text("look again (the figures have changed since)")
    page.get_by_role("link", name="look again").click()
    expect(page.locator("#recipients .as-of")).not_to_contain_text("changed")
