"""Single flight: one holder in the fleet, renewed while it works, with a fencing token for its writes."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from shared.coordination import keys
from shared.coordination.periodic import Periodic
from shared.coordination.redis import RedisLink, RedisUnavailable, Script

_log = logging.getLogger(__name__)
_ACQUIRE = Script("lock_acquire")
_RENEW = Script("lock_renew")
_RELEASE = Script("lock_release")


class FlightLost(Exception):  # noqa: N818  # the state of a lock, not a mistake
    """The lock lapsed or was taken while its holder worked; whatever is written from here on may be another's."""


class Flight:
    """
    A lock that is held, as its holder sees it.

    `fence` grows with every holder, also over a Redis that was emptied: a write guarded by "no newer fence"
    cannot be overtaken. Long work asks `check` between its steps.
    """

    def __init__(self, *, fence: int, held_until: float) -> None:
        self.fence = fence
        self._held_until = held_until
        self._lost = threading.Event()

    @property
    def held(self) -> bool:
        """False once the lease has lapsed, also where nobody could tell us: a frozen process knows when it wakes."""
        return not self._lost.is_set() and time.monotonic() < self._held_until

    def check(self) -> None:
        """
        Go on only while the lock is ours.

        Raises:
            FlightLost: stop here; what is done stays done.
        """
        if not self.held:
            raise FlightLost

    def renewed(self, until: float) -> None:
        """The lease reaches further now (monotonic seconds)."""
        self._held_until = until

    def lose(self) -> None:
        """The lock is not ours any more."""
        self._lost.set()


class SingleFlight:
    """
    One named lock of the fleet.

    The lease is renewed by a third; a holder that dies is followed within `lease_s`. A lock that lapsed is never
    taken back silently, and a foreign one is never released.
    """

    def __init__(self, link: RedisLink, *, name: str, lease_s: float = 30.0, namespace: str = keys.NAMESPACE) -> None:
        self._link = link
        self._name = name
        self._lease_s = lease_s
        self._lock = keys.LOCK.name(namespace, lock=name)
        self._fence = keys.FENCE.name(namespace, lock=name)

    @contextmanager
    def hold(self) -> Iterator[Flight | None]:
        """
        Hold the lock for the block; None where another holds it.

        Raises:
            RedisUnavailable: nobody can say who holds it.
        """
        token = uuid4().hex
        asked_at = time.monotonic()
        got, number = self._link.run(_ACQUIRE, keys=(self._lock, self._fence), args=(token, self._lease_ms))
        if not got:
            yield None
            return
        flight = Flight(fence=int(number), held_until=asked_at + self._lease_s)
        renewal = Periodic(f"renew {self._name}", self._lease_s / 3, lambda: self._renew(flight, token))
        renewal.start()
        try:
            yield flight
        finally:
            renewal.stop()
            self._release(token)

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_s * 1000)

    def _renew(self, flight: Flight, token: str) -> None:
        asked_at = time.monotonic()
        if not flight.held:
            return
        if self._link.run(_RENEW, keys=(self._lock,), args=(token, self._lease_ms)):
            flight.renewed(asked_at + self._lease_s)
        else:
            flight.lose()
            _log.warning("single_flight_lost", extra={"lock": self._name, "fence": flight.fence})

    def _release(self, token: str) -> None:
        try:
            self._link.run(_RELEASE, keys=(self._lock,), args=(token,))
        except RedisUnavailable:
            return  # the lease runs out by itself
