"""An address of every page, in a ledger that has something to show on each."""

from flask import Flask

from shared.domain.ids import delivery_id
from shared.domain.requeue import FailureFilter
from shared.ledger import digest_setup, notifications
from shared.ledger.db import Connection, Ledger
from tests.support.digests import make_channel, post
from tests.support.failing import CAUSE, make_failures
from tests.support.requeuing import plan

HOME = "/admin/monitoring"
#: They hold JSON or a stream, or only lead elsewhere.
_NO_PAGES = {"monitoring.queues", "monitoring.panels", "monitoring.events", "monitoring.find_nobody"}


def fill(ledger: Ledger) -> list[str]:
    """Put three dead letters, an operation, a digest channel and a letter into an empty ledger; give the addresses."""
    send = make_failures(ledger, count=3)
    operation = plan(ledger, FailureFilter(ids=((send.id, 1),)), undo_s=3600)
    channel = make_channel(ledger, "https://example.com/hook")
    post(ledger, "a")
    with ledger.transaction() as connection:
        notifications.detect(connection, channel)
        told = notifications.history(connection, limit=1)[0].id
        run = digest_setup.ask_run(connection, operator="kim")
        letter = _letter(connection)
    failures, digests = f"{HOME}/failures", f"{HOME}/digests"
    return [
        HOME, f"{HOME}/system", failures, f"{failures}/list", f"{failures}/groups/{CAUSE}",
        f"{failures}/{delivery_id(send.id, 2)}", f"{HOME}/failures.csv",
        f"{failures}/retrying", f"{HOME}/recipients/{delivery_id(send.id, 2)}",
        f"{HOME}/sends", f"{HOME}/sends/{send.id}", f"{HOME}/sends/{send.id}/recipients.csv",
        f"{HOME}/sends/{send.id}/pause",
        f"{HOME}/operations", f"{HOME}/operations/{operation.id}", f"{HOME}/operations/new?kind=requeue",
        f"{HOME}/audit", f"{HOME}/audit.csv",
        digests, f"{digests}/history", f"{digests}/history.csv", f"{digests}/history/{told}", f"{digests}/requeue",
        f"{digests}/discard",
        f"{digests}/channels/ops/disable", f"{digests}/channels/new", f"{digests}/channels/ops/edit",
        f"{digests}/runs/{run}",
        f"{HOME}/system/providers/sandbox:sandbox/hold", f"{HOME}/system/queues/email_bulk/pause",
        "/inbox", f"/inbox/{letter}", f"/inbox/{letter}/html",
    ]  # fmt: skip


def routes_without(app: Flask, addresses: list[str]) -> set[str]:
    """The pages of an application of which no address is given."""
    adapter = app.url_map.bind("localhost")
    opened = {adapter.match(address.partition("?")[0], method="GET")[0] for address in addresses}
    pages = {
        rule.endpoint
        for rule in app.url_map.iter_rules()
        if rule.endpoint.startswith(("monitoring.", "inbox.")) and "GET" in (rule.methods or set())
    }
    return pages - opened - _NO_PAGES


def _letter(connection: Connection) -> int:
    row = connection.execute(
        "INSERT INTO sandbox_message (key, channel, address, sender, subject, text, html) VALUES (gen_random_uuid(),"
        " 'email', 'ada@example.com', 'City <noreply@example.com>', 'Hello', 'Hello', '<p>Hello</p>') RETURNING id"
    ).fetchone()
    assert row is not None
    return int(row[0])
