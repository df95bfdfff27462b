"""Minute rings: how many messages each queue was given, finished and failed, minute by minute, bounded."""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from shared.coordination import keys
from shared.coordination.periodic import Periodic
from shared.coordination.redis import RedisLink, RedisUnavailable, Script

_ADD = Script("minutes_add")

Count = Literal["added", "done", "failed"]
_COUNTS: tuple[Count, ...] = ("added", "done", "failed")


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of one queue; `at` is its beginning (aware UTC). The newest is still filling."""

    at: datetime
    added: int
    done: int
    failed: int


class MinuteRings:
    """
    Counts of this process, flushed together every `flush_s`; and the reading of everybody's.

    A minute is the flush's, so a count is late by at most `flush_s`. A flush whose answer was lost is repeated and
    may count twice; these are figures for people, the ledger has the truth.
    """

    def __init__(self, link: RedisLink, *, points: int, flush_s: float = 5.0, namespace: str = keys.NAMESPACE) -> None:
        """`points` is the ring's length in minutes (QUEUE_METRICS_MAX_DATA_POINTS)."""
        self._link = link
        self._points = points
        self._namespace = namespace
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Count]] = Counter()
        self._periodic = Periodic("minute rings", flush_s, self.flush)

    def count(self, queue: str, what: Count, n: int = 1) -> None:
        """Count n messages; costs no round trip."""
        with self._lock:
            self._counts[queue, what] += n
        self._periodic.start()

    def flush(self) -> None:
        """
        Add what was counted to the current minute. Called by the thread.

        Raises:
            RedisUnavailable: nothing is lost, the next flush tells it.
        """
        with self._lock:
            counts, self._counts = self._counts, Counter()
        queues = sorted({queue for queue, _ in counts})
        if not queues:
            return
        numbers = [counts[queue, what] for queue in queues for what in _COUNTS]
        try:
            self._link.run(_ADD, keys=[self._key(queue) for queue in queues], args=(self._points, *numbers))
        except RedisUnavailable:
            with self._lock:
                self._counts.update(counts)
            raise

    def read(self, queues: Sequence[str], *, minutes: int) -> dict[str, list[Minute]]:
        """
        The last minutes of each queue, oldest first, the current one last; silent ones are zero.

        Raises:
            RedisUnavailable: nobody knows.
        """
        wanted = min(minutes, self._points)
        (clock,) = self._link.pipeline([("TIME",)])
        current = int(clock[0]) // 60
        span = range(current - wanted + 1, current + 1)
        fields = [minute % self._points for minute in span]
        if not queues or not fields:
            return {queue: [] for queue in queues}
        answers = self._link.pipeline([("HMGET", self._key(queue), *fields) for queue in queues])
        return {
            queue: [_minute(minute, text) for minute, text in zip(span, texts, strict=True)]
            for queue, texts in zip(queues, answers, strict=True)
        }

    def close(self) -> None:
        """Flush what is left, and stop."""
        self._periodic.stop()
        try:
            self.flush()
        except RedisUnavailable:
            return

    def _key(self, queue: str) -> str:
        return keys.MINUTES.name(self._namespace, queue=queue)


def _minute(minute: int, text: str | None) -> Minute:
    """Pure: one slot of the ring; a value of an earlier round counts as silence."""
    added = done = failed = 0
    if text is not None:
        at, *sums = (int(part) for part in text.split())
        if at == minute:
            added, done, failed = sums
    return Minute(at=datetime.fromtimestamp(minute * 60, tz=UTC), added=added, done=done, failed=failed)
