"""A daemon thread that does one thing again and again: leases, beats and flushes are all renewed by one of these."""

import logging
import threading
from collections.abc import Callable

from shared.coordination.redis import RedisUnavailable

_log = logging.getLogger(__name__)


class Periodic:
    """
    Calls `action` every `interval_s` seconds until stopped.

    Redis being away is not the thread's end: `RedisUnavailable` is left to the link, which counts and logs it.
    `wake` calls the action at once. The thread ends with the process.
    """

    def __init__(self, name: str, interval_s: float, action: Callable[[], object]) -> None:
        self._name = name
        self._interval_s = interval_s
        self._action = action
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the thread; nothing happens where it runs already."""
        with self._lock:
            if self._thread is None:
                self._stop = threading.Event()  # its own: an earlier thread may still be on its way out
                self._thread = threading.Thread(target=self._run, args=(self._stop,), name=self._name, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Call the action now instead of at the end of the interval."""
        self._wake.set()

    def stop(self, *, timeout_s: float = 2.0) -> None:
        """End the thread and wait for it; an action under way is finished first."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self, stop: threading.Event) -> None:
        while True:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if stop.is_set():
                return
            try:
                self._action()
            except RedisUnavailable:
                continue
            except Exception:  # noqa: BLE001  # a thread's border: a bug in one round must not end all renewals
                _log.exception("periodic_action_failed", extra={"periodic": self._name})
