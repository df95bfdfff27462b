"""The end of a worker, with dramatiq's own threads: what was begun is waited for, and one signal is obeyed once."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event, Semaphore, Timer
from types import FrameType

import dramatiq
import pytest

from shared.jobs import QueueName
from tests.integration.workers.inprocess import make_settings
from workers.broker import make_worker
from workers.middleware.drain import Drain
from workers.middleware.runtime import Runtime

THREADS = 8


class Holding:
    """A worker whose only actor works until it is let go; `done` are those that ended."""

    def __init__(self, database_url: str, redis_url: str, *, drain_ms: int) -> None:
        settings = make_settings(database_url, redis_url, queue_shutdown_drain_ms=drain_ms)
        self.broker, self.runtime = make_worker(settings, process="test")
        self.let_go, self.begun, self.done = Event(), Semaphore(0), list[int]()

        @dramatiq.actor(broker=self.broker, actor_name="hold", queue_name=QueueName.OPS.value)
        def hold(n: int) -> None:
            self.begun.release()
            self.let_go.wait()
            self.done.append(n)

        self.worker = dramatiq.Worker(self.broker, queues={QueueName.OPS.value}, worker_threads=THREADS)
        self.worker.start()
        self._hold = hold

    def begin(self, count: int) -> None:
        """Have so many threads at work."""
        for n in range(count):
            self._hold.send(n)
        for _ in range(count):
            assert self.begun.acquire(timeout=20)

    def close(self) -> None:
        self.let_go.set()
        self.broker.client.connection_pool.disconnect()


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_work_under_way_is_waited_for_in_whichever_thread_it_is(
    database_url: str, redis_url: str, ends: ExitStack
) -> None:
    holding = Holding(database_url, redis_url, drain_ms=20_000)
    ends.callback(holding.close)
    holding.begin(THREADS)
    Timer(2.0, holding.let_go.set).start()
    holding.worker.stop(timeout=0)  # as `python -m workers` has it
    assert sorted(holding.done) == list(range(THREADS))
    assert holding.runtime.work_ends_in_s > 10  # and not for longer than it takes


def test_work_that_does_not_end_is_left_at_the_deadline(
    database_url: str, redis_url: str, ends: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    holding = Holding(database_url, redis_url, drain_ms=2_000)
    ends.callback(holding.close)
    holding.begin(2)
    began = time.monotonic()
    holding.worker.stop(timeout=0)
    assert 1 < time.monotonic() - began < 2.5
    (said,) = [record for record in caplog.records if record.msg == "drain_unfinished"]
    assert said.__dict__["threads"] == 2


class Interrupted(Runtime):
    """Is sent a second signal in the middle of the first one's handler."""

    def begin_drain(self) -> None:
        if not self.draining:
            signal.raise_signal(signal.SIGTERM)
        super().begin_drain()


def test_a_signal_in_the_middle_of_the_first_ones_handler_changes_nothing(
    database_url: str, redis_url: str, ends: ExitStack
) -> None:
    heard = []

    def termhandler(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        ends.callback(signal.signal, number, signal.signal(number, termhandler))
    runtime = Interrupted(make_settings(database_url, redis_url), process="test")
    Drain(runtime).after_process_boot(None)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        signal.raise_signal(number)
    assert heard == [signal.SIGTERM]
    assert runtime.draining
