"""
`make screenshots-outage`: the pictures of the runbook's walk, from everything running on this machine, nothing made up.

E-mail goes to a relay that takes messages, is gone for a while (every connection is reset) and comes back; SMS goes to
the sandbox, a hundred before each picture. MINUTES says how long after the relay went a picture is taken; the relay is
back after the last of them, and two minutes later the last picture is taken. With the default, "1 5 30", it takes forty
minutes. What is printed is the moment and the verdict of each picture.
"""

import os
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.chromium import chromium
from tests.browser.screenshots import DESKTOP, everything, hand_in, look, people
from tests.support.scripted_http import RESET, Pause
from tests.support.scripted_smtp import ScriptedSmtp, scripted_smtp

#: Seconds: rates need some full minutes before the relay goes, and one after it is back.
_BEFORE_S, _AFTER_S = 200, 120
#: SMS are handed in so many seconds before each picture.
_SMS_S = 15
_NUMBERS = [f"+16045550{n}" for n in range(100, 200)]
_PATH = "/admin/monitoring"


def take(page: Page, base: str, name: str, path: str, went_at: float) -> None:
    """Take a picture, and say when it was and what the page said."""
    look(page, base, f"outage-{name}", path, "light", DESKTOP)
    verdict = " ".join(page.locator("[data-verdict]").inner_text().split())
    print(f"outage-{name}.png, {(time.monotonic() - went_at) / 60:.1f} min after the relay went: {verdict}", flush=True)


def go(relay: ScriptedSmtp) -> None:
    """From now on nothing can be handed over, on old connections and new ones; what is being taken is taken."""
    relay.always("mail", [RESET])
    relay.always("banner", [RESET])


def come_back(relay: ScriptedSmtp) -> None:
    """Take messages again."""
    relay.always("banner", b"220 relay.example.com ESMTP\r\n")
    relay.always("mail", b"250 2.1.0 ok\r\n")


def main() -> None:
    """Take them all."""
    minutes = [float(text) for text in os.environ.get("MINUTES", "1 5 30").split()]  # noqa: TID251
    with tempfile.TemporaryDirectory() as folder, scripted_smtp() as relay, chromium() as browser:
        relay.always("dot", [Pause(0.9), b"250 2.0.0 Ok: queued\r\n"])
        settings = {
            "EMAIL_PROVIDER": "smtp", "SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(relay.port), "SMTP_SECURITY": "none",
            "SANDBOX_LATENCY_MS": "900",
        }  # fmt: skip
        with everything(Path(folder), **settings) as (base, key, link):
            page = browser.new_context().new_page()
            page.goto(link, wait_until="load")
            hand_in(base, key, "Spring newsletter", people(20_000))
            page.wait_for_timeout(1000 * _BEFORE_S)
            hand_in(base, key, "Invoice reminders", people(3_000))
            went_at = time.monotonic()
            go(relay)
            for minute in minutes:
                page.wait_for_timeout(max(0.0, 1000 * (went_at + 60 * minute - _SMS_S - time.monotonic())))
                hand_in(base, key, "Appointment tomorrow", _NUMBERS, channel="sms")
                page.wait_for_timeout(1000 * _SMS_S)
                take(page, base, f"{minute:g}-min", _PATH, went_at)
            take(page, base, "system", f"{_PATH}/system", went_at)
            come_back(relay)
            page.wait_for_timeout(1000 * _AFTER_S)
            take(page, base, "over", _PATH, went_at)


if __name__ == "__main__":
    main()
