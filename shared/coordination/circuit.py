"""
Provider circuit: pybreaker's states, listeners and exceptions over decisions made in Redis.

pybreaker 1.4 itself counts consecutive failures without a window, lets every process probe in half-open, and
holds a lock around the guarded call (danielfm/pybreaker#3). So its counting and `call()` are not used: a window
of calls asks `admit` once, and tells what came of it by `report`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NoReturn
from uuid import uuid4

import pybreaker

from shared.coordination import keys
from shared.coordination.circuit_snapshot import CircuitPolicy, CircuitSnapshot, read_snapshot
from shared.coordination.redis import RedisLink, Script

_ADMIT = Script("circuit_admit", "circuit")
_REPORT = Script("circuit_report", "circuit", "circuit_results")
_ISOLATE = Script("circuit_isolate", "circuit", "circuit_results")
_HOLD = Script("circuit_hold", "circuit", "circuit_results")

#: Why calls are denied: failures opened the circuit; our configuration is wrong; an operator holds the provider.
DenialReason = Literal["circuit", "isolated", "hold"]


@dataclass(frozen=True, slots=True)
class Admitted:
    """Any number of calls may be made. The epoch makes results stale once the circuit has changed."""

    token: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Exactly one call may be made; it alone in the whole fleet decides whether to resume."""

    token: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Denied:
    """No call may be made; asking again before `retry_in_s` is in vain (a hold may last longer)."""

    reason: DenialReason
    retry_in_s: float


Permit = Admitted | Probe | Denied


class CircuitDeniedError(pybreaker.CircuitBreakerError):
    """The circuit lets no call through now; `denied` says why and for how long."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(f"{denied.reason}, again in {denied.retry_in_s:.1f} s")
        self.denied = denied


class _Observed(pybreaker.CircuitBreakerStorage):
    """
    What this process last heard of the circuit; pybreaker reads it, only the scripts' answers write it.

    Reading costs no round trip, and building one contacts nothing: Redis may be down at start-up.
    """

    def __init__(self) -> None:
        super().__init__("redis")
        self.observed: str = pybreaker.STATE_CLOSED

    @property
    def state(self) -> str:
        return self.observed

    @state.setter
    def state(self, state: str) -> None:  # noqa: ARG002  # pybreaker's signature
        raise TypeError("the circuit's state is decided in Redis: use isolate, hold and release")

    @property
    def counter(self) -> int:
        return 0

    @property
    def success_counter(self) -> int:
        return 0

    @property
    def opened_at(self) -> datetime | None:
        return None

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None:  # noqa: ARG002  # pybreaker's signature
        raise TypeError("the circuit's times are the Redis server's")


class Circuit(pybreaker.CircuitBreaker):
    """
    The circuit of one provider and credential, as one process sees it.

    Listeners hear `state_change` in every process, when that process notices. All methods raise
    `RedisUnavailable` where Redis cannot be asked; `guard.Guards` has the answer for that case.
    """

    def __init__(
        self,
        link: RedisLink,
        *,
        provider: str,
        credential: str,
        policy: CircuitPolicy | None = None,
        namespace: str = keys.NAMESPACE,
        listeners: Sequence[pybreaker.CircuitBreakerListener] = (),
    ) -> None:
        self.policy = policy or CircuitPolicy()
        self._observed = _Observed()
        self._link = link
        self._part = keys.provider_part(provider, credential)
        self._key = keys.CIRCUIT.name(namespace, provider=self._part)
        self._failures_key = keys.CIRCUIT_FAILURES.name(namespace, provider=self._part)
        super().__init__(
            fail_max=self.policy.failures,
            reset_timeout=self.policy.open_s,
            state_storage=self._observed,
            name=self._part,
            listeners=list(listeners),
            throw_new_error_on_trip=False,
        )

    def admit(self) -> Permit:
        """Ask to make calls; an open circuit hands out one probe at a time, in the whole fleet."""
        token = uuid4().hex
        args = (token, _ms(self.policy.open_s), _ms(self.policy.probe_lease_s))
        verdict, wait_ms, epoch, state = self._link.run(_ADMIT, keys=(self._key,), args=args)
        self.observe(state)
        return permit_from(verdict, wait_ms=wait_ms, token=token, epoch=epoch)

    def require(self) -> Admitted | Probe:
        """
        Like `admit`, for callers with one call and nothing to do without it.

        Raises:
            CircuitDeniedError: no call may be made now.
        """
        permit = self.admit()
        if isinstance(permit, Denied):
            raise CircuitDeniedError(permit)
        return permit

    def report(
        self, permit: Admitted | Probe, *, successes: int = 0, failures: int = 0, inconclusive: bool = False
    ) -> None:
        """
        Tell what calls of a permit came to; may be told in parts, but a probe's one result once.

        A permanent error is a success: the provider answered. Failures are provider-scope transient ones and
        timeouts; they count at the moment they are told. A probe that was throttled, interrupted or never left
        is `inconclusive` (as is one with no result at all): the next caller probes. Stale results do nothing.
        """
        if inconclusive:
            successes = failures = 0
        probing = isinstance(permit, Probe)
        if not probing and failures == 0:
            return
        args = (permit.token, permit.epoch, int(probing), successes, failures, *self.limit_args())
        self.observe(self._link.run(_REPORT, keys=(self._key, self._failures_key), args=args))

    def isolate(self, *, reason: str, code: str, permit: Admitted | Probe | None = None) -> None:
        """
        Stop calls because our configuration was refused; one call looks again after `policy.recheck_s`.

        Never touches an operator's hold.

        Args:
            reason: a sentence for people, already masked.
            code: short and stable, names the group.
            permit: of the call that met it; a stale one does nothing.
        """
        epoch = permit.epoch if isinstance(permit, Admitted) else ""
        probe = permit.token if isinstance(permit, Probe) else ""
        args = (reason, code, _ms(self.policy.recheck_s), epoch, probe)
        self.observe(self._link.run(_ISOLATE, keys=(self._key, self._failures_key), args=args))

    def hold(self, *, by: str, reason: str, hold_id: str = "", since: datetime | None = None) -> bool:
        """
        Let nothing through until `release`, for an operator; False where it was held already.

        The ledger keeps holds, and `shared.recovery.holds` tells Redis of them under their id.
        """
        since_ms = 0 if since is None else round(since.timestamp() * 1000)
        return self._hold("hold", by, reason, hold_id, since_ms)

    def release(self, *, hold_id: str = "") -> bool:
        """End an operator's hold, or only the one of that id; False where there was none. All else stays."""
        return self._hold("release", hold_id=hold_id)

    def look_again(self) -> bool:
        """Let the next call probe an isolated provider at once: settings changed. False where it was not isolated."""
        return self._hold("look_again")

    def snapshot(self) -> CircuitSnapshot:
        """Read the circuit; changes nothing."""
        fields, failures, clock = self._link.pipeline(
            [("HGETALL", self._key), ("LRANGE", self._failures_key, 0, -1), ("TIME",)]
        )
        now_s = int(clock[0]) + int(clock[1]) / 1e6
        snapshot = read_snapshot(self._part, fields, failures, now_s=now_s, policy=self.policy)
        self.observe(snapshot.state)
        return snapshot

    def observe(self, state: str) -> None:
        """Take note of the state a script answered, and tell the listeners where it is news to this process."""
        if state != self._observed.observed:
            with self._lock:
                if state != self._observed.observed:
                    self._observed.observed = state
                    self.state = state  # pybreaker's setter: new state object, listeners told

    def limit_args(self) -> tuple[int, int]:
        """How many failures in how many milliseconds open the circuit, as the scripts take them."""
        return self.policy.failures, _ms(self.policy.window_s)

    def call(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refused: outcomes are values here, and a window asks once. Use `admit` and `report`."""
        raise TypeError("use admit and report: call() decides by exceptions, one call at a time")

    def _hold(self, action: str, by: str = "", reason: str = "", hold_id: str = "", since_ms: int = 0) -> bool:
        changed, state = self._link.run(_HOLD, keys=(self._key,), args=(action, by, reason, hold_id, since_ms))
        self.observe(state)
        return bool(changed)


def permit_from(verdict: str, *, wait_ms: int, token: str, epoch: str) -> Permit:
    """The permit that a script's verdict stands for."""
    match verdict:
        case "in":
            return Admitted(token=token, epoch=epoch)
        case "probe":
            return Probe(token=token, epoch=epoch)
        case "circuit" | "isolated" | "hold":
            return Denied(reason=verdict, retry_in_s=wait_ms / 1000)
        case _:
            raise ValueError(f"unknown verdict {verdict!r}")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
