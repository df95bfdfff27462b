"""A process that starts may have new settings: what a configuration error isolated is looked at again at once."""

import contextlib
from typing import Any

import dramatiq

from shared.coordination.redis import RedisUnavailable
from shared.recovery.waits import look_again
from workers.middleware.runtime import Runtime


class FreshLook(dramatiq.Middleware):
    """
    Lifts the isolations of the accounts in use once per process, before it takes its first message.

    No chain starts for a provider that is held back, so a chain would be too late a place for it. Where Redis is
    away at the start, the first beat that reaches it does it. An operator's hold stays.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def before_worker_boot(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Look now, or with a beat to come."""
        self._runtime.each_beat.append(self._look)
        with contextlib.suppress(RedisUnavailable):
            self._look()

    def _look(self) -> None:
        look_again(self._runtime.link, self._runtime.settings)
        self._runtime.each_beat = [call for call in self._runtime.each_beat if call != self._look]
