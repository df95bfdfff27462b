"""
The pages that every check of all pages goes over: accessibility in both themes, a telephone's width, no scripts.

A page is added here with what must be in the ledger to fill it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shared.domain.states import Channel, SendStatus
from shared.ledger.db import Ledger
from tests.support.factories import make_send


@dataclass(frozen=True)
class PageCase:
    """`open` fills the ledger and gives the page's address."""

    name: str
    open: Callable[[Ledger], str]


def _empty(path: str) -> Callable[[Ledger], str]:
    return lambda ledger: path


def _overview(ledger: Ledger) -> str:
    make_send(ledger, count=300, status=SendStatus.SENDING)
    make_send(ledger, count=2, channel=Channel.SMS, status=SendStatus.SENDING)
    return "/admin/monitoring"


def _inbox(ledger: Ledger) -> str:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO sandbox_message (key, channel, address, sender, subject, text, html)"
            " SELECT gen_random_uuid(), 'email', 'ada@example.com', 'City <noreply@example.com>', 'Number ' || n,"
            " 'Hello', '<p>Hello</p>' FROM generate_series(1, 3) n"
        )
    return "/inbox"


def _letter(ledger: Ledger) -> str:
    _inbox(ledger)
    with ledger.transaction() as connection:
        row = connection.execute("SELECT max(id) FROM sandbox_message").fetchone()
    assert row is not None
    return f"/inbox/{row[0]}"


PAGES = [
    PageCase("overview, nothing there", _empty("/admin/monitoring")),
    PageCase("overview", _overview),
    PageCase("no such page", _empty("/admin/monitoring/no-such-page")),
    PageCase("inbox, nothing there", _empty("/inbox")),
    PageCase("inbox", _inbox),
    PageCase("letter", _letter),
]
