"""Whether everybody can use a page: over a slow line, in both themes, by the rules of WCAG 2.2, and on a telephone."""

from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

#: WCAG 2.2, levels A and AA, and what its authors call best practice.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: CSS pixels; WCAG 2.2, 1.4.10 asks for 320.
NARROW = 320
#: A tablet, or half a window: tables are still tables, and move in their panels.
BETWEEN = 800
#: What reaches over the edge; headings of tables that are lists here are only heard.
TOO_WIDE = """[...document.querySelectorAll('body *:not(thead *)')]
    .filter(element => element.getBoundingClientRect().right > innerWidth + 0.5)
    .map(element => element.outerHTML.slice(0, 200))"""
#: Panels out of which something reaches, as the page is.
OUT_OF_PANEL = """[...document.querySelectorAll('.panel')]
    .filter(panel => panel.scrollWidth > panel.clientWidth + 1)
    .map(panel => [panel.id || panel.getAttribute('aria-label'), panel.scrollWidth - panel.clientWidth])"""
#: Bytes of a first load as they were transferred, everything together; what the page fetches afterwards is not in it.
MOST_BYTES = 60 * 1024
#: Likewise where the page itself is not compressed, since its address has arguments.
MOST_BYTES_AS_IT_IS = 90 * 1024
TRANSFERRED = """Object.fromEntries(performance.getEntries()
    .filter(entry => entry.entryType === 'navigation' || ['link', 'script', 'img', 'css'].includes(entry.initiatorType))
    .map(entry => [new URL(entry.name).pathname, entry.transferSize]))"""


def check_light(page: Page) -> None:
    """Fail where the page that was just opened, for the first time in this browser, is too much for a slow line."""
    weights = page.evaluate(TRANSFERRED)
    assert len(weights) > 1
    most = MOST_BYTES_AS_IT_IS if "?" in page.url else MOST_BYTES
    assert sum(weights.values()) <= most, weights


def check_usable(page: Page) -> None:
    """Fail for what keeps somebody from using the page that is open; it is as wide as before afterwards."""
    found = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        results = Axe().run(page, options={"runOnly": RULES, "resultTypes": ["violations"]})
        found += [
            f"{theme}: {fault['id']}: {fault['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for fault in results.response["violations"]
            for node in fault["nodes"]
        ]
    assert found == [], "\n".join(found)
    before = page.viewport_size
    if before is not None:
        fits = page.evaluate("document.documentElement.scrollWidth") <= before["width"]
        assert fits, page.evaluate(TOO_WIDE)
    assert page.evaluate(OUT_OF_PANEL) == []
    for width in (BETWEEN, NARROW):
        page.set_viewport_size({"width": width, "height": 700})
        scrolls = page.evaluate("document.documentElement.scrollWidth") > width
        assert not scrolls, (width, page.evaluate(TOO_WIDE))
    if before is not None:
        page.set_viewport_size(before)
