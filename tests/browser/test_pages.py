"""What holds for every page of `tests.browser.pages`."""

import pytest
from playwright.sync_api import Browser, expect

from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.browser.pages import PAGES, PageCase
from tests.browser.usable import check_light, check_usable
from tests.support.site import Site

pages = pytest.mark.parametrize("case", PAGES, ids=lambda case: case.name)


@pages
def test_a_first_load_is_light_and_everybody_can_use_the_page_in_both_themes_and_on_a_telephone(
    browser_person: Person, site_ledger: Ledger, case: PageCase
) -> None:
    page = browser_person.open(case.open(site_ledger))
    check_light(page)
    check_usable(page)
    if "no such" in case.name:
        browser_person.faults.clear()  # its 404


@pages
def test_without_scripts_the_page_says_the_same(
    chromium_browser: Browser, site: Site, site_ledger: Ledger, case: PageCase
) -> None:
    path = case.open(site_ledger)
    with chromium_browser.new_context(java_script_enabled=False) as context:
        context.add_cookies([site.cookie()])
        page = Person(context, site.url, ready=site.until_it_knows_now).open(path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.locator("button:not(form button)").filter(visible=True)).to_have_count(0)
