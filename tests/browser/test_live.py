"""What keeps a page up to date, and what never happens under a person's hands."""

import re
import threading
from itertools import pairwise

import pytest
from playwright.sync_api import Locator, Page, expect

from shared.domain.requeue import FailureFilter
from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.browser.stage import PATH, Stage
from tests.support.failing import make_failures
from tests.support.requeuing import plan
from tests.support.waiting import wait_until

WAITING = "Updates waiting – show"


def opened(person: Person, path: str = f"{PATH}?asked=anything") -> Page:
    """Open the page and wait until its stream is heard."""
    page = person.open(path)
    expect(live(page)).to_have_text(re.compile(r"^Live · "))
    return page


def live(page: Page) -> Locator:
    return page.locator("[data-live]")


def word(page: Page) -> Locator:
    return page.locator("#trial [data-word]")


def change(stage: Stage, text: str) -> None:
    stage.word = text
    stage.ring()


def is_left_by_all(stage: Stage) -> bool:
    """Who left is noticed by writing to them."""
    for listener in stage.hub._present():
        listener.ring(frozenset({"trial"}))
    return not stage.hub._present()


def test_a_change_is_seen_without_reload_and_the_rest_of_the_page_stays(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.evaluate("document.querySelector('#trial').kept = 'the same element'")
    change(stage, "second")
    expect(word(page)).to_have_text("second")
    assert page.evaluate("document.querySelector('#trial').kept") == "the same element"
    expect(page.locator("#trial")).to_contain_text("to “anything”")


def test_only_what_changed_is_sent(person: Person, stage: Stage) -> None:
    page = opened(person)
    with page.expect_response(re.compile("/panels")) as caught:
        change(stage, "second")
    assert set(caught.value.json()["panels"]) == {"trial", "trial_list"}
    with page.expect_response(re.compile("/panels")) as caught:
        stage.ring()
    assert set(caught.value.json()["panels"]) <= {"verdict", "tabs"}


def looks(page: Page) -> list[float]:
    """When the page looked, in milliseconds of the browser's own clock."""
    found = page.evaluate(
        "performance.getEntriesByType('resource').filter((one) => one.name.includes('/panels?'))"
        ".map((one) => one.startTime)"
    )
    return [float(at) for at in found]


def test_a_storm_of_rings_makes_the_page_look_once_in_two_seconds(person: Person, stage: Stage) -> None:
    page = opened(person)
    is_over = threading.Event()

    def ring_on() -> None:
        while not is_over.wait(0.01):
            for listener in stage.hub._present():
                listener.ring(frozenset({"trial"}))

    storm = threading.Thread(target=ring_on)
    storm.start()
    try:
        found = wait_until(lambda: looks(page)[2:] and looks(page), timeout=60, what="three looks")
    finally:
        is_over.set()
        storm.join()
    assert all(after - before >= 1900 for before, after in pairwise(found)), found


def test_without_a_stream_an_ordinary_page_looks_every_15_seconds(person: Person, stage: Stage) -> None:
    stage.hub.is_alive = lambda: False
    page = person.open(PATH)
    expect(live(page)).to_have_text(re.compile(r"^Every 15 s · \d+ s ago$"))


def test_a_slow_server_is_asked_less_often(person: Person, stage: Stage) -> None:
    stage.hub.is_alive, stage.is_busy = (lambda: False), True
    page = person.open(PATH)
    expect(live(page)).to_have_text(re.compile(r"^Every 5 s "))
    stage.takes_s = 1.0  # for each of its two panels
    page.keyboard.press("r")
    expect(live(page)).to_have_text(re.compile(r"^Every (1\d|[2-9]\d) s "), timeout=20_000)


def test_without_a_stream_the_page_looks_by_itself_and_says_how_often(person: Person, stage: Stage) -> None:
    stage.hub.is_alive, stage.is_busy = (lambda: False), True  # no stream is given; an operation runs
    page = person.open(PATH)
    expect(live(page)).to_have_text(re.compile(r"^Every 5 s · \d+ s ago$"))
    stage.word = "second"
    expect(word(page)).to_have_text("second")


def test_a_stream_that_is_cut_leaves_the_page_looking_by_itself(person: Person, stage: Stage) -> None:
    stage.is_busy = True
    page = opened(person)
    stage.hub.is_alive = lambda: False
    expect(live(page)).to_have_text(re.compile(r"^Every \d+ s"))
    stage.word = "second"
    expect(word(page)).to_have_text("second")
    stage.hub.is_alive = lambda: True


def test_many_windows_of_one_browser_leave_it_connections_to_the_server(person: Person, stage: Stage) -> None:
    opened(person)
    address = f"{person.base}{PATH}?asked=anything"
    windows = [person.page.context.new_page() for _ in range(8)]
    for number, page in enumerate(windows, start=2):  # with six streams the next page would never come
        page.goto(address)
        expect(live(page)).to_have_text(re.compile(r"^Live · " if number <= 3 else r"^Every 15 s · "))
    windows[0].close()
    windows[-1].reload()
    expect(live(windows[-1])).to_have_text(re.compile(r"^Live · "))


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("page.locator('#trial input[name=text]').focus()", "page.locator('h1').click()"),
        ("page.locator('#trial input[name=tick]').check()", "page.locator('#trial input[name=tick]').uncheck()"),
        ("page.locator('#trial summary').click()", "page.locator('#trial summary').click()"),
        ("page.locator('#trial [data-word]').select_text()", "page.evaluate('getSelection().removeAllRanges()')"),
    ],
    ids=["focus", "tick", "details", "selection"],
)
def test_a_panel_in_a_persons_hands_is_not_replaced(person: Person, stage: Stage, begin: str, end: str) -> None:
    page = opened(person)
    exec(begin, {"page": page})
    change(stage, "second")
    waiting = page.locator("#trial .waiting")
    expect(waiting).to_have_text(WAITING)
    expect(word(page)).to_have_text("first")
    exec(end, {"page": page})
    page.locator("h1").click()
    expect(word(page)).to_have_text("second")
    expect(waiting).to_have_count(0)


def test_what_waits_is_shown_when_asked_for(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.locator("#trial summary").click()
    change(stage, "second")
    page.locator("#trial .waiting").click()
    expect(word(page)).to_have_text("second")
    expect(page.locator("#trial details")).not_to_have_attribute("open", "")


def test_a_page_that_nobody_touched_shows_new_rows_by_itself(person: Person, stage: Stage) -> None:
    page = opened(person)
    stage.rows = ["new", "c", "a"]
    change(stage, "second")
    expect(page.locator("#trial_list tbody tr th")).to_have_text(["new", "c", "a"])


def test_a_list_keeps_its_rows_and_their_order_until_asked(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.mouse.move(5, 5)
    rows = page.locator("#trial_list tbody tr")
    stage.rows = ["new", "c", "a"]
    change(stage, "second")
    expect(page.locator("#trial_list .waiting")).to_have_text("1 new – show")
    expect(rows.locator("th")).to_have_text(["a", "b", "c"])
    expect(rows.locator("td")).to_have_text(["second", "first", "second"])
    expect(rows.nth(1)).to_have_class("is-gone")
    page.locator("#trial_list .waiting").click()
    expect(rows.locator("th")).to_have_text(["new", "c", "a"])
    stage.rows = []
    stage.ring()
    expect(page.locator("#trial_list .waiting")).to_have_text("List changed – show")
    expect(rows).to_have_count(3)
    page.locator("#trial_list .waiting").click()
    expect(page.locator("#trial_list")).to_contain_text("Nothing is there.")


def test_a_verdict_is_read_out_when_its_cause_or_severity_changes_and_not_with_every_minute(
    person: Person, stage: Stage
) -> None:
    page = opened(person)
    verdict, spoken = page.locator("[data-verdict]"), page.locator("[data-status]")
    with stage.says_alone() as say:
        for text, rule, severity, heard in (
            ("ches open for 1 min", "CircuitOpen", "warning", "ches open for 1 min"),
            ("ches open for 2 min", "CircuitOpen", "warning", "ches open for 1 min"),
            ("ches open for 3 min", "CircuitOpen", "critical", "ches open for 3 min"),
            ("ches held", "ProviderHeld", "critical", "ches held"),
        ):
            say(text, rule, severity)
            expect(verdict).to_have_text(text)
            expect(spoken).to_have_text(heard)


def test_a_pause_stops_everything_and_is_remembered(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.get_by_role("button", name="Pause").click()
    expect(live(page)).to_have_text(re.compile(r"^Paused · "))
    wait_until(lambda: is_left_by_all(stage), timeout=30, what="the stream to be closed")
    page.reload()
    expect(live(page)).to_have_text(re.compile(r"^Paused · "))
    stage.word = "second"
    page.keyboard.press("p")
    expect(word(page)).to_have_text("second")
    expect(live(page)).to_have_text(re.compile(r"^Live · "))


def test_a_hidden_page_sleeps_and_looks_at_once_when_it_is_seen_again(person: Person, stage: Stage) -> None:
    page = opened(person)

    def hide(hidden: str) -> None:
        page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    hide("true")
    stage.word = "second"
    wait_until(lambda: is_left_by_all(stage), timeout=30, what="the stream to be closed")
    expect(word(page)).to_have_text("first")
    hide("false")
    expect(word(page)).to_have_text("second")


def test_a_page_that_cannot_look_says_since_when_it_is_stale(person: Person, stage: Stage) -> None:
    stage.is_busy = True
    page = opened(person)
    page.keyboard.press("r")
    page.route("**/queues/events", lambda route: route.abort())
    page.route("**/panels?*", lambda route: route.abort())
    stage.hub.is_alive = lambda: False
    expect(live(page)).to_have_text(re.compile(r"^Stale since \d\d:\d\d:\d\d UTC$"), timeout=30_000)
    expect(page.locator("body")).to_have_class("body-is-stale")
    person.faults.clear()  # the requests that were cut


def test_a_page_that_is_told_that_there_is_nothing_to_show_is_stale_at_once(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.route("**/panels?*", lambda route: route.fulfill(status=503))
    page.keyboard.press("r")
    expect(live(page)).to_have_text(re.compile(r"^Stale since \d\d:\d\d:\d\d UTC$"))
    expect(page.locator("body")).to_have_class("body-is-stale")
    page.unroute("**/panels?*")
    page.keyboard.press("r")
    expect(page.locator("body")).not_to_have_class("body-is-stale")
    person.faults.clear()  # the request that was refused


def test_a_panel_that_cannot_be_read_keeps_what_it_showed_and_says_of_when_it_is(person: Person, stage: Stage) -> None:
    page = opened(person)
    trial, note = page.locator("#trial"), "Cannot be read just now: Postgres does not answer. As seen "
    stage.is_readable = False
    change(stage, "second")
    expect(trial).to_contain_text(note)
    expect(word(page)).to_have_text("first")
    expect(page.locator("#trial_list tbody tr")).to_have_count(3)
    stage.is_readable = True
    change(stage, "third")
    expect(word(page)).to_have_text("third")
    expect(trial).not_to_contain_text(note)


def test_who_is_signed_out_is_told(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.context.clear_cookies()
    page.keyboard.press("r")
    expect(live(page)).to_have_text("Signed out: load the page again")
    person.faults.clear()  # the 401


def test_keys_open_tabs_filter_and_help_and_can_be_switched_off(person: Person, stage: Stage) -> None:
    page = opened(person)
    page.keyboard.press("/")
    expect(page.locator("[data-filter]")).to_be_focused()
    page.keyboard.type("osf")
    expect(page.locator("[data-filter]")).to_have_value("osf")
    page.locator("h1").click()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Switch the shortcuts off").check()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("o")
    page.keyboard.press("?")
    expect(dialog).not_to_be_visible()
    assert page.url.endswith(f"{PATH}?asked=anything")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    dialog.get_by_label("Switch the shortcuts off").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    page.wait_for_url("**/admin/monitoring")


def test_the_clock_switches_to_local_time_and_remembers(person: Person, stage: Stage) -> None:
    page = opened(person)
    clock = page.locator("[data-clock]")
    expect(clock).to_have_text(re.compile(r"^\d\d:\d\d:\d\d UTC$"))
    clock.click()
    expect(clock).to_have_text(re.compile(r"^\d\d:\d\d:\d\d local$"))
    page.reload()
    expect(clock).to_have_text(re.compile(r"^\d\d:\d\d:\d\d local$"))


@pytest.mark.parametrize("context_options", [{"timezone_id": "Asia/Tokyo"}])
def test_a_sends_own_time_goes_with_the_clock(person: Person, stage: Stage) -> None:
    page = opened(person)
    scheduled = page.locator("[data-scheduled]")
    expect(scheduled).to_contain_text("Fri 2 Jan 22:05 UTC")
    page.locator("[data-clock]").click()
    expect(scheduled).to_contain_text("Sat 3 Jan 07:05 local")


@pytest.mark.parametrize("context_options", [{"java_script_enabled": False}])
def test_without_scripts_the_page_is_whole_and_says_how_old_it_is(person: Person, stage: Stage) -> None:
    page = person.open(PATH)
    expect(word(page)).to_have_text("first")
    expect(live(page)).to_have_text(re.compile(r"^As of \d\d:\d\d:\d\d UTC$"))
    expect(page.locator("[data-scheduled]")).to_contain_text("Fri 2 Jan 22:05 UTC")
    for name in ("[data-pause]", "[data-clock]", "[data-keys]", ".waiting"):
        expect(page.locator(name).filter(visible=True)).to_have_count(0)
    page.get_by_role("link", name="Overview").click()
    page.wait_for_url("**/admin/monitoring")


def test_what_can_be_undone_is_counted_down_without_a_look(browser_person: Person, site_ledger: Ledger) -> None:
    make_failures(site_ledger, count=2)
    page = browser_person.open(f"/admin/monitoring/operations/{plan(site_ledger, FailureFilter(), undo_s=600).id}")
    page.get_by_role("button", name="Pause").click()
    left = page.locator(".banner time")
    first = left.inner_text()
    expect(left).not_to_have_text(first)
    assert 0 < int(left.inner_text().split()[1]) < int(first.split()[1]) <= 600
    left.evaluate("time => { time.dateTime = '2026-01-01T00:00:00Z'; }")
    expect(left).to_have_text("at any moment")
