"""A stop that loses nothing: repeated signals are one signal, prefetched messages go back at once."""

import logging
import queue
import signal
from collections import defaultdict
from types import FrameType
from typing import Any

import dramatiq

from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)
#: Seconds a consumer may take to notice that it is stopped: its longest idle wait is 1 s.
_CONSUMER_STOP_S = 1.5


class Drain(dramatiq.Middleware):
    """
    Heroku signals every process of a dyno and dramatiq's main process forwards its own signal, so a worker
    gets SIGTERM twice; dramatiq takes the second for "exit now", in the middle of a call. Here every signal
    after the first changes nothing: the deadline is QUEUE_SHUTDOWN_DRAIN_MS, and after it the platform kills.

    Source: devcenter.heroku.com/articles/dyno-shutdown-behavior; dramatiq 2.2, cli.py.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def after_process_boot(self, broker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Wrap dramatiq's handlers, which are in place by now."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            inner = signal.getsignal(number)
            if not callable(inner):
                continue

            def once(received: int, frame: FrameType | None, inner: Any = inner) -> None:
                if not self._runtime.draining:
                    self._runtime.begin_drain()
                    inner(received, frame)

            signal.signal(number, once)

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Take nothing more, and hand back what was fetched and not begun: another worker has it at once."""
        self._runtime.begin_drain()
        for consumer in worker.consumers.values():
            consumer.stop()
        for consumer in worker.consumers.values():
            consumer.join(_CONSUMER_STOP_S)
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
