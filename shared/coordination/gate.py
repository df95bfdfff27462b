"""Gate of a provider: closed while it told us to wait (429 and its kin). Waiting burns no attempt."""

from shared.coordination import keys
from shared.coordination.redis import RedisLink, Script

_CLOSE = Script("gate_close")


class Gate:
    """
    The gate of one provider and credential, for the whole fleet. Jitter on reopening is the caller's.

    Methods raise `RedisUnavailable` where Redis cannot be asked.
    """

    def __init__(self, link: RedisLink, *, provider: str, credential: str, namespace: str = keys.NAMESPACE) -> None:
        self._link = link
        self._key = keys.GATE.name(namespace, provider=keys.provider_part(provider, credential))

    def closed_for_s(self) -> float:
        """Seconds until the gate opens; 0 while open."""
        (left_ms,) = self._link.pipeline([("PTTL", self._key)])
        return max(0, int(left_ms)) / 1000

    def close(self, closed_s: float) -> float:
        """Close it for so many seconds; never shortens. Gives the seconds it stays closed."""
        return int(self._link.run(_CLOSE, keys=(self._key,), args=(max(1, round(closed_s * 1000)),))) / 1000
