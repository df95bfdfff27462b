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
        part = keys.provider_part(provider, credential)
        self._key = keys.GATE.name(namespace, provider=part)
        self._keys = (self._key, keys.GATE_GROWTH.name(namespace, provider=part))

    def closed_for_s(self) -> float:
        """Seconds until the gate opens; 0 while open."""
        (left_ms,) = self._link.pipeline([("PTTL", self._key)])
        return max(0, int(left_ms)) / 1000

    def close(self, closed_s: float, *, grows_to_s: float | None = None) -> float:
        """
        Close it for so many seconds; never shortens. Gives the seconds it stays closed.

        With `grows_to_s` it is twice as long as the last time, up to that, where it opened no longer ago than it had
        been closed; calls that were in flight when it closed change nothing.
        """
        args = (max(1, round(closed_s * 1000)), round((grows_to_s or 0) * 1000))
        return int(self._link.run(_CLOSE, keys=self._keys, args=args)) / 1000
