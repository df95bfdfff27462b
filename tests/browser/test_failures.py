"""What a person does on the Failures pages: a cause is requeued, undone, stopped; nothing moves under their hands."""

import re

from playwright.sync_api import Page, expect

from shared.domain.requeue import FailureFilter, OperationKind
from shared.ledger import failures
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.support.factories import counts
from tests.support.failing import CAUSE, TITLE, fail_again, make_failures
from tests.support.ledger_rows import put_rows, scalar
from tests.support.requeuing import chunk, finish, plan

PATH = "/admin/monitoring/failures"


def discard(page: Page, why: str) -> None:
    """Give up the one group that is shown."""
    page.get_by_role("link", name=f"Discard: {TITLE}").click()
    page.get_by_label("Why").fill(why)
    page.get_by_role("button", name=re.compile("^Discard")).click()
    expect(page.locator(".banner")).to_contain_text(re.compile(r"Discarding \d+"))


def work_off(ledger: Ledger) -> None:
    """Do what is planned, its ten seconds over."""
    with ledger.autocommit() as connection:
        connection.execute("UPDATE operation SET run_at = now() - interval '1 second' WHERE status = 'scheduled'")
    finish(ledger)


def test_a_group_is_requeued_from_its_row_and_undone(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_failures(site_ledger, count=3)
    page = browser_person.open("/admin/monitoring/failures")
    page.get_by_role("link", name=f"Requeue: {TITLE}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Requeue 3 e-mails")
    page.get_by_label("Why (if you like)").fill("the relay is back")
    page.get_by_role("button", name="Requeue 3 e-mails").click()
    expect(page.locator(".banner")).to_contain_text("Requeueing 3")
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
    expect(page.locator(".banner")).to_contain_text("Discarding 2")
    assert scalar(site_ledger, "SELECT array_agg(row_no ORDER BY row_no) FROM operation_item") == [1, 4]


def test_a_list_is_not_called_live_and_is_read_again_when_asked(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=2)
    page = browser_person.open(f"{PATH}/list")
    rows, loaded = page.get_by_role("checkbox", name=re.compile("@")), re.compile(r"^Loaded at \d\d:\d\d:\d\d UTC$")
    expect(page.locator("[data-live]")).to_have_text(loaded)
    expect(rows).to_have_count(2)
    make_failures(site_ledger, count=1)
    page.get_by_role("link", name="look again").click()
    expect(rows).to_have_count(3)
    expect(page.locator("[data-live]")).to_have_text(loaded)


def test_a_recipient_is_found_and_the_address_is_in_no_address_bar(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, addresses=["jane.doe@example.com"])
    page = browser_person.open("/admin/monitoring/failures")
    page.get_by_label(re.compile("^Find a recipient")).fill("Jane.Doe@example.com")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Everything to j***@e***.com")
    expect(page.get_by_role("link", name="dead-lettered")).to_have_count(1)
    assert "jane" not in page.url
    assert "jane" not in page.content().lower()


def test_a_requeue_ends_with_its_result_and_leads_to_what_failed_again(
    browser_person: Person, site_ledger: Ledger
) -> None:
    send = make_failures(site_ledger, count=3)
    page = browser_person.open(f"{PATH}/groups/{CAUSE}")
    page.get_by_role("link", name=f"Requeue 3: {TITLE}").click()
    page.get_by_role("button", name="Requeue 3 e-mails").click()
    expect(page.locator(".banner")).to_contain_text("Requeueing 3")
    work_off(site_ledger)
    put_rows(site_ledger, send.id, [1], "sent")
    fail_again(site_ledger, send.id, [2, 3])
    page.reload()
    expect(page.locator("#operation")).to_contain_text("3 requeued, 0 skipped, 0 left as they were")
    page.get_by_role("link", name="View the 2 dead-lettered again").click()
    expect(page.locator(".failure-list tbody tr")).to_have_count(2)


def test_a_group_is_discarded_and_undone(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=3)
    discard(browser_person.open(PATH), "a typo of theirs")
    browser_person.page.get_by_role("button", name="Undo").click()
    expect(browser_person.page.locator(".flash")).to_have_text("Undone: nothing was done.")
    work_off(site_ledger)
    assert scalar(site_ledger, "SELECT count(*) FROM failure WHERE discarded_at IS NULL") == 3


def test_what_was_discarded_is_restored(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=3)
    page = browser_person.open(PATH)
    discard(page, "a typo of theirs")
    work_off(site_ledger)
    page.reload()
    page.get_by_role("link", name="View the 3 discarded").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Discarded failures")
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Restore selected…").click()
    page.get_by_role("button", name="Restore 1 e-mail").click()
    expect(page.locator(".banner")).to_contain_text("Restoring 1")
    work_off(site_ledger)
    assert scalar(site_ledger, "SELECT count(*) FROM failure WHERE discarded_at IS NULL") == 1


def test_a_restore_is_undone(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=3)
    plan(site_ledger, FailureFilter(), kind=OperationKind.DISCARD)
    finish(site_ledger)
    page = browser_person.open(f"{PATH}/list?status=any&discarded=1")
    page.get_by_role("link", name=re.compile("^Restore all of this filter")).click()
    page.get_by_role("button", name="Restore 3 e-mails").click()
    expect(page.locator(".banner")).to_contain_text("Restoring 3")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".flash")).to_have_text("Undone: nothing was done.")
    work_off(site_ledger)
    assert scalar(site_ledger, "SELECT count(*) FROM failure WHERE discarded_at IS NOT NULL") == 3


def test_a_requeue_and_a_note_move_no_button_of_the_rows_below(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=3)
    make_failures(site_ledger, cause="bbbbbbbbbbbb", title="no such mailbox")
    page = browser_person.open(PATH)
    buttons = [page.get_by_role("link", name=f"{kind}: no such mailbox") for kind in ("Requeue", "Discard")]
    before = [button.bounding_box() for button in buttons]
    plan(site_ledger, FailureFilter(signature=CAUSE), operator="Kim Example-Somebody", undo_s=600)
    with site_ledger.transaction() as connection:
        failures.write_note(connection, CAUSE, "their export was wrong, and they know: ticket 12", author="kim")
    page = browser_person.open(PATH)
    expect(page.locator("#groups")).to_contain_text("3 planned, can be undone")
    assert [button.bounding_box() for button in buttons] == before


def test_an_operation_is_stopped_midway_and_the_rest_stays(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_failures(site_ledger, count=5)
    made = plan(site_ledger, FailureFilter())
    with site_ledger.transaction() as connection:
        assert chunk(connection, size=2) == 2
    page = browser_person.open(f"/admin/monitoring/operations/{made.id}")
    expect(page.locator("#operation")).to_contain_text("2 requeued, 0 skipped, 3 left")
    page.get_by_label("Why you stop it").fill("the relay is away again")
    page.get_by_role("button", name="Stop: leave 3 as they are").click()
    expect(page.locator(".flash")).to_have_text("Stopped: the rest stays as it was.")
    expect(page.locator("#operation")).to_contain_text("stopped by kim: the relay is away again")
    work_off(site_ledger)
    assert counts(site_ledger, send.id) == {"owed": 2, "dead_lettered": 3}


def test_an_address_is_revealed_once_for_a_reason(browser_person: Person, site_ledger: Ledger) -> None:
    send = make_failures(site_ledger, addresses=["jane.doe@example.com"])
    page = browser_person.open(f"{PATH}/{send.id}.1")
    assert "jane.doe" not in page.content()
    page.get_by_text("Reveal the address").click()
    page.get_by_label("Why do you need it?").fill("they called")
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator(".revealed")).to_have_text("jane.doe@example.com")
    page.goto(page.url)  # by hand, and so without the form
    expect(page.get_by_role("heading", level=1)).to_have_text("j***@e***.com")
    assert "jane.doe" not in page.content()
    assert scalar(site_ledger, "SELECT reason FROM audit WHERE action = 'reveal address'") == "they called"


def test_a_note_is_left_for_others(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger)
    page = browser_person.open(f"{PATH}/groups/{CAUSE}")
    page.get_by_label("Note for others").fill("their export was wrong, ticket 12")
    page.get_by_role("button", name="Save the note").click()
    expect(page.locator(".flash")).to_have_text("The note is written.")
    page = browser_person.open(PATH)
    expect(page.locator("#groups .group-note")).to_have_text("their export was wrong, ticket 12")


def test_a_filter_is_chosen_and_is_the_address(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=2)
    make_failures(site_ledger, tenant="other", cause="bbbbbbbbbbbb", title="no such mailbox")
    page = browser_person.open(PATH)
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Tenant", exact=True).select_option("other")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#groups .group-title a")).to_have_text("no such mailbox")
    assert "tenant=other" in page.url
    page.get_by_role("link", name="Clear the filter").click()
    expect(page.locator("#groups .group-title a")).to_have_count(2)


def test_who_may_only_read_sees_the_actions_shut_with_the_reason(reader: Person, site_ledger: Ledger) -> None:
    send = make_failures(site_ledger)
    page = reader.open(f"{PATH}/groups/{CAUSE}")
    for word in ("Requeue 1…", "Discard 1…"):
        shut = page.get_by_text(word, exact=True)
        expect(shut).to_have_attribute("aria-disabled", "true")
        expect(shut).to_have_attribute("title", re.compile("signed in to read"))
    for name in ("Save the note", "Requeue selected…", "Discard selected…"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()
    page = reader.open(f"{PATH}/{send.id}.1")
    page.get_by_text("Reveal the address").click()
    expect(page.get_by_role("button", name="Reveal")).to_be_disabled()
    page = reader.open("/admin/monitoring/operations/new?kind=requeue")
    expect(page.get_by_role("button", name="Requeue 1 e-mail")).to_be_disabled()
