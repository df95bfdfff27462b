"""The machine's own Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

Theme = Literal["light", "dark"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
#: Milliseconds a test waits for something to show; the machine may be busy with other things.
PATIENCE_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """
    Start the browser.

    Where none is installed the tests are skipped, saying how to get one; CI fails.
    """
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        missing = "these tests need Chromium: apt-get install chromium (or the package of your system)"
        if os.environ.get("CI"):  # noqa: TID251
            raise AssertionError(missing)
        pytest.skip(missing)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Person:
    """
    Somebody before a browser: opens pages, and fails a test whose page has a fault.

    A fault is an error of a script, a refusal by the page's own policy, or a request to another host.

    Args:
        ready: called before a page is opened, to wait until it would show what the test has put there.
    """

    def __init__(self, context: BrowserContext, base: str, *, ready: Callable[[], None] = lambda: None) -> None:
        context.set_default_timeout(PATIENCE_MS)
        self.base = base
        self._ready = ready
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda line: self.faults.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self._note(request.url))

    def open(self, path: str) -> Page:
        """Open an address of the site and wait until it is there; streams stay open, so for no silence."""
        self._ready()
        self.page.goto(f"{self.base}{path}", wait_until="load")
        return self.page

    def _note(self, url: str) -> None:
        if not url.startswith((self.base, "data:", "about:")):
            self.faults.append(f"a request to another host: {url}")

    def check(self) -> None:
        """Fail for what was wrong."""
        assert self.faults == []
