"""
Stops as platforms make them, with the Procfile's own commands: to the main process, to the group, twice, followed by a
kill, in the middle of a call longer than the grace, and a freeze that outlives the lease.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from admin.local.procfile import read
from shared.coordination.heartbeat import list_workers
from shared.coordination.redis import RedisLink
from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.support.books import assert_books_balance
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import scalar
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess
from tests.support.sink import SinkHandle, running_sink
from tests.support.waiting import wait_until

SENDING = SendStatus.SENDING
CAP = 10
Start = Callable[..., RunningProcess]
MakeSink = Callable[[int], SinkHandle]


@pytest.fixture
def make_sink() -> Iterator[MakeSink]:
    """A provider that answers after so many milliseconds."""
    with ExitStack() as ends:
        yield lambda latency_ms: ends.enter_context(running_sink(latency_ms=latency_ms))


@pytest.fixture
def start(process: ProcessStarter) -> Start:
    """Start a process of the Procfile over a provider."""
    commands = {entry.name: entry.shell_command for entry in read(CHECKOUT / "Procfile")}

    def start(name: str, sink: SinkHandle, **settings: str) -> RunningProcess:
        env = {
            "EMAIL_PROVIDER": "ches",
            "CHES_BASE_URL": f"{sink.url}/api/v1",
            "CHES_TOKEN_URL": f"{sink.url}/token",
            "CHES_CLIENT_ID": "client",
            "CHES_CLIENT_SECRET": "secret",
            "CHES_MAX_CONCURRENT_REQUESTS": str(CAP),
            "LEASE_MS": "2000",
            "LEASE_RENEW_MS": "500",
            "DUE_WORK_INTERVAL_MS": "200",
            **settings,
        }
        ready = "clock_started" if name == "clock" else "ready for action"
        return process(commands[name], env=env, name=name, ready=ready)

    return start


def in_flight(ledger: Ledger, send: MadeSend) -> int:
    return counts(ledger, send.id).get("sending", 0)


def begin(
    ledger: Ledger, start: Start, sink: SinkHandle, *, count: int, **settings: str
) -> tuple[MadeSend, RunningProcess]:
    """A send with calls in flight in one bulk worker."""
    send = make_send(ledger, count=count, status=SENDING)
    for name in ("worker_ops", "clock"):
        start(name, sink)
    worker = start("worker_bulk", sink, **settings)
    wait_until(lambda: in_flight(ledger, send), timeout=20, what="calls in flight")
    return send, worker


def everybody_once(ledger: Ledger, send: MadeSend, sink: SinkHandle, *, timeout: float = 60) -> None:
    wait_until(lambda: send_status(ledger, send.id) == "completed", timeout=timeout, what="the end of the send")
    assert counts(ledger, send.id) == {"sent": send.count}
    assert sink.count() == {"total": send.count, "distinct": send.count, "duplicates": 0}
    assert_books_balance(ledger)


@pytest.mark.parametrize("how", ["main only", "group", "group twice"])
def test_calls_in_flight_end_and_are_recorded_and_the_rest_goes_to_another_worker(
    ledger: Ledger, redis_url: str, start: Start, make_sink: MakeSink, how: str
) -> None:
    sink = make_sink(1_000)
    send, first = begin(ledger, start, sink, count=60)
    link = RedisLink(redis_url)
    wait_until(lambda: bulk_workers(link), timeout=10, what="the worker's beat")
    if how == "main only":
        first.signal(SIGTERM)
    else:
        first.signal_group(SIGTERM)
    if how == "group twice":
        wait_until(lambda: "draining" in first.output(), what="the drain")
        first.signal_group(SIGTERM)
    assert first.wait(26) == 0
    assert bulk_workers(link) == []  # a clean end leaves the list at once
    link.close()
    assert "process_ended_badly" not in first.output()
    left = counts(ledger, send.id)
    assert set(left) <= {"sent", "owed"}, left
    assert sink.count()["total"] == left["sent"]
    start("worker_bulk", sink)
    everybody_once(ledger, send, sink)


def bulk_workers(link: RedisLink) -> list[str]:
    return [each.identity.name for each in list_workers(link) if "email_bulk" in each.identity.queues]


def test_a_call_longer_than_the_grace_is_cut_in_time_and_becomes_unsure_and_the_exit_is_clean(
    ledger: Ledger, start: Start, make_sink: MakeSink
) -> None:
    sink = make_sink(120_000)
    send, worker = begin(ledger, start, sink, count=CAP * 2, QUEUE_SHUTDOWN_DRAIN_MS="6000")
    called = in_flight(ledger, send)
    wait_until(lambda: sink.count()["total"] == called, what="the calls at the provider")
    begun = time.monotonic()
    worker.signal_group(SIGTERM)
    assert worker.wait(10) == 0
    assert 3 < time.monotonic() - begun < 6.5
    assert counts(ledger, send.id) == {"unsure": called, "owed": send.count - called}
    assert scalar(ledger, "SELECT count(*) FROM delivery WHERE prove_at IS NOT NULL") == called
    assert scalar(ledger, "SELECT array_agg(DISTINCT code) = ARRAY['call_cut'] FROM attempt")
    assert_books_balance(ledger)


def test_a_worker_killed_in_its_drain_leaves_its_calls_unsure_and_nobody_is_called_twice(
    ledger: Ledger, start: Start, make_sink: MakeSink
) -> None:
    sink = make_sink(60_000)
    send, worker = begin(ledger, start, sink, count=CAP, QUEUE_SHUTDOWN_DRAIN_MS="105000", PLATFORM_GRACE_MS="120000")
    called = in_flight(ledger, send)
    wait_until(lambda: sink.count()["total"] == called, what="the calls at the provider")
    worker.signal_group(SIGTERM)
    wait_until(lambda: "draining" in worker.output(), what="the drain")
    worker.signal_group(SIGKILL)  # as the platform does when its grace is over
    worker.wait()
    wait_until(lambda: counts(ledger, send.id).get("unsure") == called, timeout=20, what="the dead worker's calls")
    start("worker_bulk", sink)
    wait_until(lambda: sink.count()["total"] == send.count, timeout=20, what="the rest of the calls")
    assert sink.count()["duplicates"] == 0


def test_a_worker_frozen_for_longer_than_its_lease_sends_nothing_twice_when_it_goes_on(
    ledger: Ledger, start: Start, make_sink: MakeSink
) -> None:
    sink = make_sink(300)
    send, first = begin(ledger, start, sink, count=300)
    wait_until(lambda: counts(ledger, send.id).get("sent", 0) > 20, timeout=20, what="some sent")
    first.signal_group(SIGSTOP)
    frozen = in_flight(ledger, send)
    wait_until(lambda: in_flight(ledger, send) == 0, timeout=20, what="the frozen worker's batches to be free")
    assert counts(ledger, send.id).get("unsure", 0) <= frozen <= CAP
    start("worker_bulk", sink)
    wait_until(lambda: sink.count()["total"] > 100, timeout=30, what="the other worker")
    first.signal_group(SIGCONT)
    everybody_once(ledger, send, sink, timeout=90)
    assert first.is_running()
    os.killpg(os.getpgid(first.pid), SIGTERM)
    assert first.wait(26) == 0
