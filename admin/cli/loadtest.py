"""`tidings loadtest`: made-up recipients at a steady rate, through the API into the sandbox, and what came of it."""

import io
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from admin.cli.connection import local_environment
from admin.cli.fault import CommandError
from admin.cli.made_up import LARGEST_SEND, made_up_send
from admin.cli.screen import say_json
from admin.cli.stores import ledger_transaction

if TYPE_CHECKING:
    from admin.cli.api_client import ApiClient
    from admin.cli.waiting import Gauge

#: Seconds of recipients in one send.
_TICK_S = 1.0
#: Open sends that are asked about between two submissions, so that asking never delays submitting by much.
_ASKED_AT_ONCE = 20
#: Seconds without any progress, everything being handed in, after which the test is given up.
_PATIENCE_S = 120.0
_NOT_FOUND, _PAGE = 404, 1000


@dataclass
class _Run:
    """What was handed in and what is known of it. `open` are the sends not settled at the last look."""

    accepted: int = 0
    open: list[str] = field(default_factory=list)
    sends: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        """Deliveries settled at the last look."""
        from admin.cli.books import settled_in

        return sum(settled_in(send) for send in self.sends.values())


@click.command()
@click.option("--recipients", type=click.IntRange(1, 10_000_000), default=1_000, show_default=True, help="How many.")
@click.option("--rate", type=click.FloatRange(0.01, 100_000), default=100.0, show_default=True, help="Per second.")
@click.option("--channel", type=click.Choice(["email", "sms"]), default="email", show_default=True)
@click.option("--tenant", default="loadtest", show_default=True, help="Whose sends they are; made if missing.")
@click.option("--url", envvar="TIDINGS_URL", metavar="URL", help="The installation; default: what `make up` runs.")
def loadtest(recipients: int, rate: float, channel: str, tenant: str, url: str | None) -> None:
    """
    Hand in made-up recipients at a steady rate and measure what becomes of them.

    The web process must run with LOADTEST_MODE=true. A test key is made in the ledger (DATABASE_URL), bound to the
    tenant through the API and revoked at the end: whatever is configured, everything goes to the sandbox.

    The last line is JSON; times are milliseconds from acceptance to the settled outcome. Exit code 1 unless every
    recipient was sent, once, and the books balance.
    """
    from admin.cli.waiting import gauge

    base = url or local_environment().get("TIDINGS_URL")
    if not base:
        raise CommandError("say where the web process is: --url or TIDINGS_URL")
    with _credential(base, tenant) as api, gauge("Settled", recipients) as bar:
        started = time.monotonic()
        run = _hand_in(api, recipients=recipients, rate=rate, channel=channel, bar=bar)
        handed_in_s = time.monotonic() - started
        _wait(api, run, bar)
        result = _measure(api, run)
    result = {
        "recipients": recipients, "channel": channel, "asked_rate": rate,
        "handed_in_rate": round(recipients / max(handed_in_s, recipients / rate), 1), **result,
    }  # fmt: skip
    say_json(result)
    if result["sent"] != recipients or result["duplicates"] or result["unaccounted"]:
        raise CommandError("not every recipient was sent exactly once")


@contextmanager
def _credential(base: str, tenant: str) -> Iterator["ApiClient"]:
    from admin.cli.api_client import ApiClient, Refusal
    from shared.domain.states import Mode
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        key_id, secret = tenants.create_key(connection, tenant_id=None, mode=Mode.TEST, name="load test")
    try:
        api = ApiClient(base, secret)
        try:
            api.post("/loadtest/bind", {"tenant": tenant})
        except Refusal as refusal:
            if refusal.status == _NOT_FOUND:
                raise CommandError(
                    "the web process is not in load-test mode: start it with LOADTEST_MODE=true"
                ) from None
            raise
        yield api
    finally:
        with ledger_transaction() as connection:
            tenants.revoke_key(connection, key_id)


def _hand_in(api: "ApiClient", *, recipients: int, rate: float, channel: str, bar: "Gauge") -> _Run:
    """Submit sends of one tick each, on time however long the answers take, and look at open ones in between."""
    run, handed_in, started = _Run(), 0, time.monotonic()
    while handed_in < recipients:
        elapsed = time.monotonic() - started
        due = min(recipients, math.ceil(rate * (elapsed + _TICK_S)))
        count = min(due - handed_in, LARGEST_SEND[channel])
        if count > 0:
            body = json.dumps(made_up_send(channel, first=handed_in, count=count)).encode()
            answer = api.submit(io.BytesIO(body), len(body), key=f"loadtest-{uuid4()}")
            run.accepted += answer["accepted"][channel]
            run.open.append(answer["id"])
            handed_in += count
        _look(api, run)
        bar.show(run.settled, f"{handed_in:,} handed in")
        next_due = started + handed_in / rate - _TICK_S
        time.sleep(min(max(next_due - time.monotonic(), 0.0), 1.0) if handed_in < recipients else 0.0)
    return run


def _look(api: "ApiClient", run: _Run) -> None:
    """Ask about the oldest open sends; those that are over leave the list."""
    from admin.cli.books import is_over

    asked, run.open = run.open[:_ASKED_AT_ONCE], run.open[_ASKED_AT_ONCE:]
    for send_id in asked:
        run.sends[send_id] = api.get(f"/sends/{send_id}")
        if not is_over(run.sends[send_id]):
            run.open.append(send_id)


def _wait(api: "ApiClient", run: _Run, bar: "Gauge") -> None:
    settled, moved_at = -1, time.monotonic()
    while run.open:
        _look(api, run)
        bar.show(run.settled, "all handed in")
        if run.settled != settled:
            settled, moved_at = run.settled, time.monotonic()
        if time.monotonic() - moved_at > _PATIENCE_S:
            raise CommandError(
                f"nothing was settled for {_PATIENCE_S:.0f} s; {len(run.open):,} sends are open: do the workers run?"
            )
        time.sleep(0.2)


def _measure(api: "ApiClient", run: _Run) -> dict[str, Any]:
    from admin.cli.books import COLUMNS

    books = [counts for send in run.sends.values() for counts in send["books"].values()]
    totals = {name: sum(counts[name] for counts in books) for name in (*COLUMNS, "unaccounted")}
    took_ms, duplicates, first, last = [], 0, None, None
    for send_id, send in run.sends.items():
        accepted_at = datetime.fromisoformat(send["created_at"])
        first = min(first or accepted_at, accepted_at)
        for delivery in _deliveries(api, send_id):
            if delivery["attempt_count"] > 1:
                attempts = api.get(f"/deliveries/{delivery['id']}")["attempts"]
                duplicates += max(0, sum(attempt["became"] == "sent" for attempt in attempts) - 1)
            if delivery["status"] == "sent":
                settled_at = datetime.fromisoformat(delivery["settled_at"])
                took_ms.append((settled_at - accepted_at).total_seconds() * 1000)
                last = max(last or settled_at, settled_at)
    seconds = (last - first).total_seconds() if first and last else 0.0
    took_ms.sort()
    return {
        "accepted": run.accepted,
        **totals,
        "unaccounted": totals["unaccounted"] + run.accepted - sum(counts["accepted"] for counts in books),
        "seconds": round(seconds, 3),
        "rate": round(totals["sent"] / seconds, 1) if seconds else None,
        "p50_ms": _percentile(took_ms, 0.50),
        "p95_ms": _percentile(took_ms, 0.95),
        "duplicates": duplicates,
    }


def _deliveries(api: "ApiClient", send_id: str) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = api.get(f"/sends/{send_id}/deliveries?limit={_PAGE}{cursor}")
        yield from page["deliveries"]
        if page["next_cursor"] is None:
            return
        cursor = f"&cursor={page['next_cursor']}"


def _percentile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1) if ordered else None
