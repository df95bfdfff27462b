"""How long windows waited for a slot under a provider's cap: counted by bucket and minute, for the whole fleet."""

import threading
import time
from bisect import bisect_right
from collections import Counter

from shared.coordination import keys
from shared.coordination.redis import RedisLink
from shared.domain.pace import BOUNDS_S

#: Full minutes that are read, and the running one.
MINUTES = 5
#: Seconds for which a minute's counts are kept.
_KEPT_S = 60 * (MINUTES + 5)


class SlotWaits:
    """
    The waits of one provider and credential, in the buckets of `shared.domain.pace`.

    A wait that was given up counts with the time it took until then. Minutes are those of each process's own clock.
    """

    def __init__(self, link: RedisLink, *, provider: str, credential: str, namespace: str = keys.NAMESPACE) -> None:
        self._link = link
        self._part = keys.provider_part(provider, credential)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()

    def count(self, seconds: float) -> None:
        """Count one window's wait; costs no round trip."""
        with self._lock:
            self._counts[bisect_right(BOUNDS_S, seconds) + 1] += 1

    def flush(self) -> None:
        """
        Add what was counted to the running minute.

        Raises:
            RedisUnavailable: what was counted since the last flush is forgotten: these are figures for people.
        """
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if counts:
            key = self._key(_minute())
            adding = [("HINCRBY", key, bucket, count) for bucket, count in counts.items()]
            self._link.pipeline([*adding, ("EXPIRE", key, _KEPT_S)])

    def read(self) -> dict[int, int]:
        """
        Bucket → windows of the last minutes, over all processes; see `shared.domain.pace.percentile`.

        Raises:
            RedisUnavailable: nobody knows.
        """
        now = _minute()
        waits: Counter[int] = Counter()
        for counts in self._link.pipeline([("HGETALL", self._key(each)) for each in range(now - MINUTES, now + 1)]):
            waits.update({int(bucket): int(count) for bucket, count in counts.items()})
        return dict(waits)

    def _key(self, minute: int) -> str:
        return keys.SLOT_WAITS.name(self._namespace, provider=self._part, minute=str(minute))


def _minute() -> int:
    return int(time.time()) // 60
