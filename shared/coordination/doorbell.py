"""Doorbell: "these panels changed". It carries no data: whoever hears it fetches, and polling is the same path."""

import threading
import time
from collections.abc import Iterator

import redis

from shared.coordination import keys
from shared.coordination.periodic import Periodic
from shared.coordination.redis import RedisLink, RedisUnavailable, Script

_RING = Script("doorbell_ring")

#: Seconds between two rings in the whole fleet: faster, nobody could read.
INTERVAL_S = 2.0


class Doorbell:
    """
    The ringing side, one per process. `ring` costs no round trip; a thread tells Redis.

    Changes that come within the interval are not lost: they are kept for the next ring. A ring that Redis never
    heard is: pages poll.
    """

    def __init__(self, link: RedisLink, *, interval_s: float = INTERVAL_S, namespace: str = keys.NAMESPACE) -> None:
        self._link = link
        self._interval_ms = round(interval_s * 1000)
        self._keys = (keys.DOORBELL_CHANGED.name(namespace), keys.DOORBELL_QUIET.name(namespace))
        self._channel = keys.DOORBELL_CHANNEL.name(namespace)
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._kept = False
        self._ringing_at = 0.0
        self._interval_s = interval_s
        self._periodic = Periodic("doorbell", interval_s, self.flush)

    def ring(self, *panels: str) -> None:
        """Say that panels changed. Names contain no space."""
        with self._lock:
            first = not self._changed
            self._changed.update(panels)
        self._periodic.start()
        if first and time.monotonic() >= self._ringing_at:
            self._periodic.wake()

    def flush(self) -> None:
        """
        Tell Redis what changed since the last time. Called by the thread.

        Raises:
            RedisUnavailable: nobody was told; what changed is kept for the next time.
        """
        with self._lock:
            panels, self._changed = self._changed, set()
        if not (panels or self._kept):
            return
        self._ringing_at = time.monotonic() + self._interval_s
        args: tuple[str | int, ...] = (self._channel, self._interval_ms, *sorted(panels))
        try:
            self._kept = int(self._link.run(_RING, keys=self._keys, args=args)) > 0
        except RedisUnavailable:
            with self._lock:
                self._changed |= panels
            raise

    def close(self) -> None:
        """Ring for what is left, and stop."""
        self._periodic.stop()
        try:
            self.flush()
        except RedisUnavailable:
            return


def listen(link: RedisLink, *, tick_s: float = 1.0, namespace: str = keys.NAMESPACE) -> Iterator[frozenset[str]]:
    """
    Hear the doorbell: the panels that changed, or an empty set after `tick_s` of silence, so that the caller can
    stop. One subscription per process, fanned out by the caller.

    Raises:
        RedisUnavailable: the subscription is lost; fall back to polling and call again later.
    """
    client = link.subscriber(timeout_s=tick_s + 5.0)
    try:
        with client.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(keys.DOORBELL_CHANNEL.name(namespace))
            while True:
                message = subscription.get_message(timeout=tick_s)
                yield frozenset(str(message["data"]).split()) if message else frozenset()
    except (redis.exceptions.RedisError, OSError) as fault:
        raise RedisUnavailable(type(fault).__name__) from fault
    finally:
        client.close()
