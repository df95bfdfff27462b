"""Slots of a provider: how many calls may be in flight over all processes, as leases that dead holders lose."""

from dataclasses import dataclass
from uuid import uuid4

from shared.coordination import keys
from shared.coordination.redis import RedisLink, Script
from shared.domain.states import Lane

_ACQUIRE = Script("slots_acquire", "slots")
_RELEASE = Script("slots_release", "slots")
_RENEW = Script("slots_renew", "slots")
_COUNT = Script("slots_count", "slots")

#: Seconds a lease lives without renewal: a dead holder's slots are free after it. Holders renew by a third.
LEASE_S = 15.0


@dataclass(frozen=True, slots=True)
class InFlight:
    """Calls in flight over all processes."""

    all: int
    bulk: int


def window_token(lane: Lane) -> str:
    """A name for one window; it carries the lane, since bulk windows may not use the reserved share."""
    return f"{lane.value}:{uuid4().hex}"


def reserved_slots(cap: int, percent: int) -> int:
    """Slots kept for single sends: `percent` of the cap rounded up, but never all of them: bulk must move too."""
    return max(0, min(-(-cap * percent // 100), cap - 1))


class Slots:
    """
    The cap of one provider and credential.

    One lease per window carries the number of its calls in flight, so taking and returning cost the same for
    one call and for a hundred. `cap` 0 or None: no cap, no round trip. Methods raise `RedisUnavailable`.
    """

    def __init__(
        self,
        link: RedisLink,
        *,
        provider: str,
        credential: str,
        cap: int | None,
        reserved: int = 0,
        lease_s: float = LEASE_S,
        namespace: str = keys.NAMESPACE,
    ) -> None:
        part = keys.provider_part(provider, credential)
        self._link = link
        self._keys = (keys.SLOT_LEASES.name(namespace, provider=part), keys.SLOT_COUNTS.name(namespace, provider=part))
        self.cap = cap or 0
        self.reserved = max(0, min(reserved, self.cap - 1))
        self._lease_ms = round(lease_s * 1000)

    def acquire(self, token: str, want: int) -> int:
        """Take all or some of the slots wanted for a window; how many were taken, 0 to `want`."""
        if not self.cap:
            return want
        args = (token, want, self.cap, self.reserved, self._lease_ms)
        return int(self._link.run(_ACQUIRE, keys=self._keys, args=args))

    def release(self, token: str, n: int) -> int:
        """Give back n of a window's slots as its calls end; how many it still holds (0: its lease lapsed)."""
        if not self.cap:
            return 0
        return int(self._link.run(_RELEASE, keys=self._keys, args=(token, n)))

    def renew(self, token: str, n: int) -> bool:
        """
        Keep a window's lease; n is the calls it has in flight.

        False: the lease had been lost, and was written again even if that exceeds the cap, since the calls
        are in flight all the same.
        """
        if not self.cap:
            return True
        return bool(self._link.run(_RENEW, keys=self._keys, args=(token, n, self._lease_ms)))

    def in_flight(self) -> InFlight:
        """Count the calls in flight under this cap; 0 where there is none."""
        if not self.cap:
            return InFlight(all=0, bulk=0)
        everything, bulk = self._link.run(_COUNT, keys=self._keys)
        return InFlight(all=int(everything), bulk=int(bulk))
