"""What a provider's circuit is at a moment, for people; and the policy that makes sense of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pybreaker


@dataclass(frozen=True, slots=True)
class CircuitPolicy:
    """
    When a circuit opens and is tried again. Seconds.

    `probe_lease_s` must outlast the longest call, unless the holder renews it: a prober that died frees itself
    after it. Source: 5 failures in 10 s and 30 s open are the owner's rule; a configuration is looked at again
    after 5 minutes.
    """

    failures: int = 5
    window_s: float = 10.0
    open_s: float = 30.0
    probe_lease_s: float = 35.0
    recheck_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Hold:
    """An operator's hold: who, why, since when (aware UTC), and its id in the ledger ("" where it has none)."""

    by: str
    reason: str
    since: datetime
    id: str = ""


@dataclass(frozen=True, slots=True)
class Isolation:
    """An automatic isolation: our configuration was refused; one call looks again at `recheck_at` (aware UTC)."""

    reason: str
    code: str
    since: datetime
    recheck_at: datetime


@dataclass(frozen=True, slots=True)
class CircuitSnapshot:
    """
    What people are shown. `state` is pybreaker's word; a hold and an isolation show as "open" with their reason.

    `opened_at` is since when it is not closed, through failed probes too; None where failures did not open it.
    `next_probe_in_s` is None while closed, held or being probed. `reopened` counts probes that failed since it opened.
    """

    provider: str
    state: str
    failures_in_window: int
    opened_at: datetime | None
    next_probe_in_s: float | None
    reopened: int
    hold: Hold | None
    isolation: Isolation | None


def read_snapshot(
    provider: str, fields: dict[str, str], failures: Sequence[str], *, now_s: float, policy: CircuitPolicy
) -> CircuitSnapshot:
    """Pure: what the circuit's hash and failure times mean at `now_s` (the server's clock, seconds)."""
    hold = isolation = None
    if "held_at" in fields:
        hold = Hold(
            by=fields["held_by"],
            reason=fields["held_reason"],
            since=_moment(fields["held_at"]),
            id=fields.get("held_id", ""),
        )
    if "isolated_at" in fields:
        isolation = Isolation(
            reason=fields["isolated_reason"],
            code=fields["isolated_code"],
            since=_moment(fields["isolated_at"]),
            recheck_at=_moment(fields["recheck_at"]),
        )
    opened_ms = int(fields["opened_at"]) if fields.get("state") else None
    probing = "probe_token" in fields and int(fields["probe_until"]) > now_s * 1000
    shut = opened_ms is not None or isolation is not None
    state = pybreaker.STATE_CLOSED
    next_probe_in_s = None
    if hold is not None or (shut and not probing):
        state = pybreaker.STATE_OPEN
    elif shut:
        state = pybreaker.STATE_HALF_OPEN
    if shut and hold is None and not probing:
        opens_s = opened_ms / 1000 + policy.open_s if opened_ms is not None else 0.0
        recheck_s = isolation.recheck_at.timestamp() if isolation is not None else 0.0
        next_probe_in_s = max(0.0, max(opens_s, recheck_s) - now_s)
    return CircuitSnapshot(
        provider=provider,
        state=state,
        failures_in_window=sum(int(at) > (now_s - policy.window_s) * 1000 for at in failures),
        opened_at=_moment(fields.get("open_since", fields["opened_at"])) if opened_ms is not None else None,
        next_probe_in_s=next_probe_in_s,
        reopened=int(fields.get("reopened", "0")),
        hold=hold,
        isolation=isolation,
    )


def _moment(ms: str) -> datetime:
    return datetime.fromtimestamp(int(ms) / 1000, tz=UTC)
