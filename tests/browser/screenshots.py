"""
`make screenshots`: the pictures of docs/screenshots, from everything running on this machine, and nothing made up.

Four sends are handed in, two of them with recipients that the sandbox refuses, answers late or loses; then pictures are
taken of the pages as they are. SECONDS_BEFORE says how long it runs before (default 200: rates need some minutes).
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.browser.chromium import chromium
from tests.support.processes import CHECKOUT
from tests.support.site import free_port
from tests.support.waiting import wait_until

FOLDER = CHECKOUT / "docs" / "screenshots"
DESKTOP, TELEPHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
#: name, address, colours, size
PICTURES: tuple[tuple[str, str, Any, dict[str, int]], ...] = (
    ("overview", "/admin/monitoring", "light", DESKTOP),
    ("overview-dark", "/admin/monitoring", "dark", DESKTOP),
    ("overview-telephone", "/admin/monitoring", "light", TELEPHONE),
    ("failures", "/admin/monitoring/failures", "light", DESKTOP),
    ("system", "/admin/monitoring/system", "light", DESKTOP),
)


@contextmanager
def everything(folder: Path, **settings: str) -> Iterator[tuple[str, str, str]]:
    """Run what `make up` runs, in a folder of its own; give, once it is up, its address, a key and a sign-in link."""
    written = folder / "up.log"
    environment = {**os.environ, "UP_PORT": str(free_port()), **settings}  # noqa: TID251
    command = [sys.executable, "-m", "admin.local", "up", "--folder", str(folder / "data")]
    with written.open("wb") as output:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=output, stderr=output, env=environment)
    try:
        wait_until(lambda: "Ctrl-C ends everything" in written.read_text(), timeout=180, what="everything to be up")
        printed = written.read_text()
        [link] = re.findall(r"http://\S+/admin/sign-in/link/\S+", printed)
        yield link.partition("/admin/")[0], re.findall(r"tid_live_\w+", printed)[0], link
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def hand_in(base: str, key: str, name: str, recipients: list[str], *, channel: str = "email") -> None:
    """Hand a send in."""
    words = {"subject": name, "text": "Hello"} if channel == "email" else {"text": name}
    body = {"name": name, channel: {**words, "recipients": [{"to": address} for address in recipients]}}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/api/v1/sends", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 202


def people(count: int, **asked: int) -> list[str]:
    """Addresses; of every 1,000 as many as `asked` make the sandbox answer so."""
    words = [word for word, share in asked.items() for _ in range(share)]
    return [f"{(words[n % 1000] if n % 1000 < len(words) else 'person')}+{n}@example.com" for n in range(count)]


def look(page: Page, base: str, name: str, path: str, colours: Any, size: dict[str, int]) -> None:
    """Take one picture."""
    page.set_viewport_size(size)  # type: ignore[arg-type]
    page.emulate_media(color_scheme=colours, reduced_motion="reduce")
    page.goto(f"{base}{path}", wait_until="load")
    page.locator(".live:is(.is-live, .is-polling, .is-loaded)").wait_for()
    page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    """Take them all."""
    seconds = int(os.environ.get("SECONDS_BEFORE", "200"))  # noqa: TID251
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        everything(Path(folder), SANDBOX_LATENCY_MS="900") as (base, key, link),
        chromium() as browser,
    ):
        hand_in(base, key, "Spring newsletter", people(120_000, permanent=6, greylisted=4))
        hand_in(base, key, "Invoice reminders", people(40_000, permanent=2, ambiguous=1))
        page = browser.new_context().new_page()
        page.goto(link, wait_until="load")
        page.wait_for_timeout(1000 * max(0, seconds - 20))
        hand_in(base, key, "Appointment tomorrow", [f"+16045550{n}" for n in range(100, 200)], channel="sms")
        hand_in(base, key, "Reset your password", people(3))
        page.wait_for_timeout(20_000)
        for picture in PICTURES:
            look(page, base, *picture)
    for path in sorted(FOLDER.glob("*.png")):
        print(f"{path.relative_to(CHECKOUT)}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
