"""Nothing stale looks live: what is read once says of when it is."""

import html
import re
from datetime import UTC, datetime, timedelta

from flask import Flask

from shared.ledger.db import Ledger
from tests.support.browser import Browser
from tests.support.page_addresses import HOME, fill

AS_OF = re.compile(r'As of <time datetime="([^"]+)"[^>]*>[^<]*</time> – <a href="([^"]+)">look again</a>')
#: They have a table or an item that no panel renews.
READ_ONCE = re.compile(
    rf"{HOME}/(?:failures/(?!list)[^/]+|failures/list|failures/groups/\w+|sends|sends/[^/]+|operations|audit"
    r"|digests/history|digests/history/\d+)|/inbox(?:/\d+)?"
)


def test_lists_and_items_say_when_they_were_read_and_lead_to_a_newer_look(app: Flask, ledger: Ledger) -> None:
    browser = Browser(app)
    addresses = [address for address in fill(ledger) if READ_ONCE.fullmatch(address)]
    assert len(addresses) == 12
    for address in addresses:
        asked = datetime.now(UTC)
        found = AS_OF.search(browser.get(address).text)
        assert found, address
        assert timedelta(seconds=-1) < datetime.fromisoformat(found[1]) - asked < timedelta(seconds=30)
        assert found[2] == address


def test_a_newer_look_keeps_the_filter(browser: Browser) -> None:
    found = AS_OF.search(browser.get(f"{HOME}/audit?operator=kim&action=hold").text)
    assert found
    assert html.unescape(found[2]) == f"{HOME}/audit?operator=kim&action=hold"
