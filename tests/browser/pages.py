"""
The pages that every check of all pages goes over: accessibility in both themes, a telephone's width, no scripts.

A page is added here with what must be in the ledger to fill it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shared.domain.states import Channel, SendStatus
from shared.ledger import pauses, providers
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


def _system(ledger: Ledger) -> str:
    make_send(ledger, count=30, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        pauses.pause(connection, "sms_bulk", operator="kim", reason="the contract is being renewed, until Monday")
        providers.hold(
            connection, provider="sandbox", credential="sandbox", operator="kim", reason="they asked us to stop"
        )
        connection.execute(
            "INSERT INTO recovery_pass (worker, fence, ended_at, counts) VALUES ('worker ops@host:1', 7, now(),"
            """ '{"batch": {"found": 2, "retried": 1, "requeued": 1, "given_up": 0}}')"""
        )
    return "/admin/monitoring/system"


PAGES = [
    PageCase("overview, nothing there", _empty("/admin/monitoring")),
    PageCase("overview", _overview),
    PageCase("failures, nothing there", _empty("/admin/monitoring/failures")),
    PageCase("operations, nothing there", _empty("/admin/monitoring/operations")),
    PageCase("audit", _empty("/admin/monitoring/audit")),
    PageCase("sign-in", _empty("/admin/sign-in")),
    PageCase("no such page", _empty("/admin/monitoring/no-such-page")),
    PageCase("inbox, nothing there", _empty("/inbox")),
    PageCase("inbox", _inbox),
    PageCase("letter", _letter),
    PageCase("system, nothing there", _empty("/admin/monitoring/system")),
    PageCase("system", _system),
    PageCase("holding a provider", _empty("/admin/monitoring/system/providers/sandbox:sandbox/hold")),
    PageCase("pausing a queue", _empty("/admin/monitoring/system/queues/email_bulk/pause")),
]
