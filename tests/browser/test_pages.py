"""What holds for every page of `tests.browser.pages`."""

import gzip
import re
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from shared.ledger.db import Ledger
from tests.browser.chromium import Person
from tests.browser.pages import PAGES, PageCase
from tests.support.site import Site

#: Bytes of a first load, compressed, everything together.
MOST = 60 * 1024
#: WCAG 2.2, levels A and AA, and what its authors call best practice.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: CSS pixels; WCAG 2.2, 1.4.10 asks for 320.
NARROW = 320
#: What reaches over the edge; headings of tables that are lists here are only heard.
TOO_WIDE = """[...document.querySelectorAll('body *:not(thead *)')]
    .filter(element => element.getBoundingClientRect().right > innerWidth + 0.5)
    .map(element => element.outerHTML.slice(0, 200))"""

pages = pytest.mark.parametrize("case", PAGES, ids=lambda case: case.name)


@pages
def test_everybody_can_use_the_page_in_both_themes_and_on_a_telephone(
    browser_person: Person, site_ledger: Ledger, case: PageCase
) -> None:
    page = browser_person.open(case.open(site_ledger))
    found = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        results = Axe().run(page, options={"runOnly": RULES, "resultTypes": ["violations"]})
        found += [
            f"{theme}: {fault['id']}: {fault['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for fault in results.response["violations"]
            for node in fault["nodes"]
        ]
    assert found == []
    page.set_viewport_size({"width": NARROW, "height": 700})
    scrolls = page.evaluate("document.documentElement.scrollWidth") > NARROW
    assert not scrolls, page.evaluate(TOO_WIDE)
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


@pages
def test_a_first_load_is_light(site: Site, site_ledger: Ledger, case: PageCase) -> None:
    def load(path: str) -> bytes:
        text = site.get(path)[1]
        return gzip.compress(text.encode(), 6)

    path = case.open(site_ledger)
    text = site.get(path)[1]
    parts = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', text))
    weights = {part: len(load(part)) for part in parts} | {path: len(load(path))}
    assert sum(weights.values()) <= MOST, weights
