"""A message that was begun too often and never ended is set aside; the ledger still has its work."""

import logging
from typing import Any

import dramatiq
from dramatiq.middleware import SkipMessage

from shared.coordination.message_starts import MessageStarts
from shared.coordination.redis import RedisUnavailable
from workers.middleware.failed_jobs import FailedJobs
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)


class Stalled(dramatiq.Middleware):
    """
    Redis gives the messages of a dead worker to another. One that came back QUEUE_MAX_STALLED_COUNT times, and ended
    with none of its workers, is acknowledged without being run: what it was to do is found in the ledger, where
    recoveries are counted too.

    While Redis is away nothing is counted and nothing set aside.
    """

    def __init__(self, runtime: Runtime, failed_jobs: FailedJobs) -> None:
        self._failed_jobs = failed_jobs
        self._most_starts = 1 + runtime.settings.queue_max_stalled_count
        self._starts = MessageStarts(runtime.link, namespace=runtime.settings.redis_namespace)

    def before_process_message(self, broker: Any, message: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Count the start; stop a message that had too many."""
        try:
            starts = self._starts.begin(message.options["redis_message_id"])
        except RedisUnavailable:
            return
        if starts > self._most_starts:
            _log.error(
                "message_set_aside",
                extra={"queue": message.queue_name, "actor": message.actor_name, "begun": starts - 1},
            )
            error = f"begun {starts - 1} times and never ended: its workers died"
            self._failed_jobs.note(message, kind="set_aside", error=error, starts=starts - 1)
            raise SkipMessage("begun too often without an end")

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:  # noqa: ARG002
        """Forget a message that ended."""
        self._end(message)

    def after_skip_message(self, broker: Any, message: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Forget a message that was set aside."""
        self._end(message)

    def _end(self, message: Any) -> None:
        try:
            self._starts.end(message.options["redis_message_id"])
        except RedisUnavailable:
            return  # the count ends by its time to live
