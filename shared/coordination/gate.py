"""Gate of a provider: closed while it told us to wait (429 and its kin). Waiting burns no attempt."""

from shared.coordination import keys
from shared.coordination.redis import RedisLink, Script

_CLOSE = Script("gate_close")

#: Seconds a gate may be closed at least and at most, and where the provider named none (RFC 9110 §10.2.3 sets
#: no bounds; an hour keeps a wrong header from stopping a day, a second keeps us from hammering).
SHORTEST_S = 1.0
LONGEST_S = 3600.0
DEFAULT_S = 30.0


def clamp_retry_after(retry_after_s: float | None) -> float:
    """Seconds to stay closed for what a provider asked; None where it asked nothing. NaN counts as nothing."""
    if retry_after_s is None or retry_after_s != retry_after_s:  # noqa: PLR0124  # NaN
        return DEFAULT_S
    return min(max(retry_after_s, SHORTEST_S), LONGEST_S)


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

    def close(self, retry_after_s: float | None = None) -> float:
        """Close it for what the provider asked, clamped; never shortens. Gives the seconds it stays closed."""
        wish_ms = round(clamp_retry_after(retry_after_s) * 1000)
        return int(self._link.run(_CLOSE, keys=(self._key,), args=(wish_ms,))) / 1000
