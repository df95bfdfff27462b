"""What a person with a page open sees while a store hangs, and when it is back."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
from shared.ledger.migrate import upgrade
from tests.browser.chromium import Person
from tests.browser.usable import check_usable
from tests.support.freezer import Freezer
from tests.support.processes import ProcessStarter
from tests.support.servers import POSTGRES_OPTIONS, server_folder
from tests.support.site import Site
from tests.support.waiting import wait_until

HOME, LIVE, VERDICT = "/admin/monitoring", "[data-live]", "[data-verdict]"
#: Milliseconds between two looks that are asked for, and how many there are at most.
LOOK_MS, MOST_LOOKS = 2_000, 30


@dataclass
class Hanging:
    """A person before a site whose stores can be frozen."""

    person: Person
    postgres: Freezer
    valkey: Freezer


@pytest.fixture
def hanging(chromium_browser: Browser, tether: Tether, tmp_path: Path) -> Iterator[Hanging]:
    account = server_account()
    with ExitStack() as stack:
        folders = [stack.enter_context(server_folder()) for _ in range(2)]
        postgres = Freezer(Postgres(folders[0], tether=tether, account=account, options=POSTGRES_OPTIONS))
        stack.callback(postgres.stop)
        valkey = Freezer(Valkey(folders[1], tether=tether, account=account))
        stack.callback(valkey.stop)
        upgrade(postgres.url)
        starter = ProcessStarter(tether, tmp_path, lambda: {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url})
        stack.callback(starter.end_all)
        site = Site(starter, postgres.url)
        context = stack.enter_context(chromium_browser.new_context(viewport={"width": 1280, "height": 800}))
        context.add_cookies([site.cookie()])
        yield Hanging(Person(context, site.url), postgres, valkey)


def look_until(page: Page, part: str, says: str) -> None:
    """Let the page look, which it does by itself every ten or fifteen seconds, until a part of it says so."""
    for _ in range(MOST_LOOKS):
        page.keyboard.press("r")
        with suppress(AssertionError):
            expect(page.locator(part)).to_have_text(re.compile(says), timeout=LOOK_MS)
            return
    expect(page.locator(part)).to_have_text(re.compile(says))


@pytest.mark.timeout(300)  # servers of its own, and each of its looks may wait for a store that hangs
def test_an_open_page_tells_of_a_store_that_hangs_shuts_its_actions_and_comes_back(hanging: Hanging) -> None:
    page = hanging.person.open(f"{HOME}/system")
    stale, alive = r"^Stale since \d\d:\d\d:\d\d UTC$", "^Live · "
    look_until(page, LIVE, alive)
    expect(page.locator("#queues a").first).to_be_visible()

    hanging.postgres.freeze()
    look_until(page, LIVE, stale)
    expect(page.locator(VERDICT)).to_contain_text("Postgres does not answer")
    expect(page.locator("#recovery")).to_contain_text("As seen")
    expect(page.locator("#queues a")).to_have_count(0)
    expect(page.locator("#queues [aria-disabled=true]").first).to_be_visible()

    page.goto(f"{hanging.person.base}{HOME}/audit")
    expect(page.get_by_role("heading", name="This page needs the ledger")).to_be_visible()
    expect(page.locator(LIVE)).to_have_text(re.compile(stale))
    check_usable(page)
    hanging.postgres.thaw()
    look_until(page, "#away", "It answers again: load the page")
    page.get_by_role("link", name="load the page").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()

    page.goto(f"{hanging.person.base}{HOME}/system")
    look_until(page, LIVE, alive)
    hanging.valkey.freeze()
    look_until(page, LIVE, "^Every 15 s · ")
    look_until(page, VERDICT, "^Redis does not answer")
    expect(page.locator("#queues")).to_contain_text("As seen")
    hanging.valkey.thaw()
    look_until(page, LIVE, alive)
    look_until(page, VERDICT, "^(?!Redis does not)")

    hanging.valkey.freeze()
    hanging.postgres.freeze()
    wait_until(lambda: is_blind(page, f"{hanging.person.base}{HOME}/system"), timeout=90, what="nothing to show")
    again = page.locator("[data-again]")
    expect(again).to_contain_text("Looks again by itself every 10 s")
    check_usable(page)
    again.get_by_role("button", name="Pause").click()
    expect(again).to_contain_text("Paused")
    hanging.valkey.thaw()
    hanging.postgres.thaw()
    again.get_by_role("button", name="Go on").click()
    expect(page.locator("#queues")).to_be_visible()


def is_blind(page: Page, address: str) -> bool:
    answer = page.goto(address)
    return answer is not None and answer.status == HTTPStatus.SERVICE_UNAVAILABLE
