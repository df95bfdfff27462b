"""A stop that loses nothing: repeated signals are one, what was fetched goes back, what was begun is waited for."""

import logging
import queue
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from types import FrameType
from typing import Any

import dramatiq

from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)
#: Seconds a consumer may take to notice that it is stopped: its longest idle wait is 1 s.
_CONSUMER_STOP_S = 1.5
#: Seconds between two orders to stop to the same thread.
_TELL_AGAIN_S = 0.2


class Drain(dramatiq.Middleware):
    """
    Heroku signals every process of a dyno and dramatiq's main process forwards its own signal, so a worker
    gets SIGTERM twice; dramatiq takes the second for "exit now", in the middle of a call. Here every signal
    after the first changes nothing: the deadline is QUEUE_SHUTDOWN_DRAIN_MS, and after it the platform kills.

    The threads are waited for here. Dramatiq's own wait takes the time that went by off the rest once for each
    thread: with eight, of which an idle one takes its second to notice, a busy one that comes late in the list is
    left seven seconds early, in the middle of its calls (`join_all` in its common.py; --worker-shutdown-timeout 0
    leaves it nothing to wait for).

    Source: devcenter.heroku.com/articles/dyno-shutdown-behavior; dramatiq 2.2, cli.py and worker.py.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def after_process_boot(self, broker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Wrap dramatiq's handlers, which are in place by now."""
        # One step of the interpreter: a second signal may interrupt the handler of the first anywhere else.
        first = [True]
        for number in (signal.SIGTERM, signal.SIGHUP):
            inner = signal.getsignal(number)
            if not callable(inner):
                continue

            def once(received: int, frame: FrameType | None, inner: Any = inner) -> None:
                try:
                    first.pop()
                except IndexError:
                    return
                self._runtime.begin_drain()
                inner(received, frame)

            signal.signal(number, once)

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Take nothing more, hand back what was fetched and not begun (another worker has it at once), and wait."""
        self._runtime.begin_drain()
        for thread in worker.workers:
            thread.stop()
        _end(worker.consumers.values(), within_s=_CONSUMER_STOP_S)
        waiting = _fetched_not_begun(worker)
        for name, messages in waiting.items():
            worker.consumers[name].requeue_messages(messages)
        _log.info(
            "draining",
            extra={
                "given_back": sum(map(len, waiting.values())),
                "until_s": self._runtime.settings.queue_shutdown_drain_ms / 1000,
            },
        )
        left = _end(worker.workers, within_s=self._runtime.work_ends_in_s)
        if left:
            _log.warning("drain_unfinished", extra={"threads": left})


def _end(threads: Iterable[Any], *, within_s: float) -> int:
    """
    Stop threads and wait for their end; how many had not ended in time.

    They are told again and again: one that has only just started says last that it runs.
    """
    until = time.monotonic() + within_s
    waited_for = list(threads)
    for thread in waited_for:
        thread.stop()
    for thread in waited_for:
        while thread.is_alive() and (left_s := until - time.monotonic()) > 0:
            thread.stop()
            thread.join(min(left_s, _TELL_AGAIN_S))
    return sum(thread.is_alive() for thread in waited_for)


def _fetched_not_begun(worker: Any) -> dict[str, list[Any]]:
    """
    Messages this process took off its queues and no thread has begun, by queue.

    Those still inside a consumer's own cache are among them: dramatiq forgets them at a stop, and they would
    come back only once this worker's silence had lasted the heartbeat timeout.
    """
    waiting = defaultdict(list)
    while True:
        try:
            item = worker.work_queue.get_nowait()
        except queue.Empty:
            break
        waiting[item.message.queue_name].append(item.message)
        worker.work_queue.task_done()
    for name, thread in worker.consumers.items():
        cache = getattr(thread.consumer, "message_cache", None) or []
        waiting[name].extend(dramatiq.Message.decode(data) for data in cache if data is not None)
        cache.clear()
    return waiting
