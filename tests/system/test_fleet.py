"""The Procfile's own commands as processes: a send through a provider that counts, signals, and a kill."""

import time
from collections.abc import Callable, Iterator
from signal import SIGTERM

import pytest

from admin.local.procfile import read
from shared.domain.states import Lane, SendStatus
from shared.jobs import Jobs, make_broker
from shared.ledger.db import Ledger
from tests.support.books import assert_books_balance
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess
from tests.support.sink import SinkHandle, running_sink
from tests.support.waiting import wait_until

RECIPIENTS = 2_000
#: calls in flight over all processes; a fifth of them is kept for single sends
CAP = 40
#: s; a lease lasts 15 s and is looked at every 2 s, a new process needs a few to start
MOVING_AGAIN_S = 25

Start = Callable[[str], RunningProcess]


@pytest.fixture
def sink() -> Iterator[SinkHandle]:
    """Takes 0.1 s for each message: the send lasts about 6 s."""
    with running_sink(latency_ms=100) as sink:
        yield sink


@pytest.fixture
def start(process: ProcessStarter, sink: SinkHandle) -> Start:
    """Start a process of the Procfile."""
    commands = {entry.name: entry.shell_command for entry in read(CHECKOUT / "Procfile")}
    env = {
        "EMAIL_PROVIDER": "ches",
        "CHES_BASE_URL": f"{sink.url}/api/v1",
        "CHES_TOKEN_URL": f"{sink.url}/token",
        "CHES_CLIENT_ID": "client",
        "CHES_CLIENT_SECRET": "secret",
        "CHES_MAX_CONCURRENT_REQUESTS": str(CAP),
    }
    return lambda name: process(commands[name], env=env, name=name)


def settled(ledger: Ledger, send: MadeSend) -> int:
    return sum(n for status, n in counts(ledger, send.id).items() if status not in ("owed", "sending", "retrying"))


def wait_until_settled(ledger: Ledger, send: MadeSend, *, more_than: int, timeout: float = 30) -> None:
    wait_until(lambda: settled(ledger, send) > more_than, timeout=timeout, what=f"more than {more_than} settled")


def wait_until_completed(ledger: Ledger, send: MadeSend, *, timeout: float = 40) -> None:
    wait_until(lambda: send_status(ledger, send.id) == "completed", timeout=timeout, what="the end of the send")
    assert_books_balance(ledger)


def test_a_send_reaches_each_of_its_recipients_once(
    ledger: Ledger, redis_url: str, start: Start, sink: SinkHandle
) -> None:
    for name in ("worker_ingest", "worker_send", "worker_bulk", "worker_ops", "clock"):
        start(name)
    bulk = make_send(ledger, count=RECIPIENTS)
    single = make_send(ledger, addresses=["somebody@example.com"], lane=Lane.SINGLE)
    jobs = Jobs(make_broker(redis_url, namespace="tidings", heartbeat_timeout_ms=20_000))
    jobs.ingest(bulk.id)
    jobs.ingest(single.id)
    jobs.broker.client.connection_pool.disconnect()
    for send in (single, bulk):
        wait_until_completed(ledger, send)
    assert counts(ledger, bulk.id) == {"sent": RECIPIENTS}
    assert sink.count() == {"total": RECIPIENTS + 1, "distinct": RECIPIENTS + 1, "duplicates": 0}


def test_a_worker_told_twice_to_stop_ends_with_zero_and_another_sends_the_rest(
    ledger: Ledger, start: Start, sink: SinkHandle
) -> None:
    for name in ("worker_ops", "clock"):
        start(name)
    first = start("worker_bulk")
    send = make_send(ledger, count=RECIPIENTS, status=SendStatus.SENDING)
    wait_until_settled(ledger, send, more_than=200)
    first.signal_group(SIGTERM)
    wait_until(lambda: "draining" in first.output(), what="the drain")
    first.signal_group(SIGTERM)
    assert first.wait(26) == 0
    before = counts(ledger, send.id)
    assert set(before) == {"sent", "owed"}, before
    start("worker_bulk")
    wait_until_completed(ledger, send)
    assert counts(ledger, send.id) == {"sent": RECIPIENTS}
    assert sink.count() == {"total": RECIPIENTS, "distinct": RECIPIENTS, "duplicates": 0}


def test_a_worker_killed_in_mid_send_leaves_only_its_calls_in_flight_to_be_proved_and_nobody_gets_two(
    ledger: Ledger, start: Start, sink: SinkHandle
) -> None:
    for name in ("worker_ops", "clock"):
        start(name)
    first = start("worker_bulk")
    send = make_send(ledger, count=RECIPIENTS, status=SendStatus.SENDING)
    wait_until_settled(ledger, send, more_than=200)
    first.kill()
    killed_at = time.monotonic()
    left_behind = counts(ledger, send.id).get("sending", 0)
    start("worker_bulk")
    accepted = sink.count()["total"]
    wait_until(lambda: sink.count()["total"] > accepted + CAP, timeout=MOVING_AGAIN_S, what="the send to move again")
    assert time.monotonic() - killed_at < MOVING_AGAIN_S
    wait_until_settled(ledger, send, more_than=RECIPIENTS - 1, timeout=40)
    after = counts(ledger, send.id)
    assert set(after) <= {"sent", "unsure"}
    assert after.get("unsure", 0) <= left_behind <= CAP
    let_the_first_look_be_due(ledger)
    taken = sink.count()["distinct"]
    wait_until(lambda: counts(ledger, send.id)["sent"] == taken, timeout=20, what="what was taken to be proved")
    assert_books_balance(ledger)
    missing = RECIPIENTS - taken
    assert counts(ledger, send.id).get("unsure", 0) == missing  # absent at one look proves nothing
    assert missing == 0 or send_status(ledger, send.id) == "sending"
    assert sink.count() == {"total": taken, "distinct": taken, "duplicates": 0}


def let_the_first_look_be_due(ledger: Ledger) -> None:
    """Calls to CHES are looked at 30 s after their outcome became unknown; let that time have passed."""
    with ledger.transaction() as connection:
        for table in ("delivery", "batch"):
            connection.execute(
                f"UPDATE {table} SET prove_at = prove_at - interval '30 seconds' WHERE prove_at IS NOT NULL"
            )
