"""What one process may do on its own while Redis cannot be asked. Pure: time comes in as monotonic seconds."""

from collections import deque
from dataclasses import dataclass
from typing import Literal

from shared.coordination.circuit_snapshot import CircuitPolicy

#: Why a window may not be entered.
HeldReason = Literal["gate", "circuit", "isolated", "hold", "cap"]


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls one window may make; a probe is exactly one."""

    calls: int
    probe: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """No call may be made; asking again before `retry_in_s` is in vain."""

    reason: HeldReason
    retry_in_s: float


class LocalShare:
    """
    A process's own guard: its share of the cap, what it last heard of the provider, and its own failures.

    The share is the cap divided by the last known number of workers, at least 1. Not thread-safe: its owner
    holds a lock.
    """

    def __init__(self, *, cap: int, policy: CircuitPolicy, cap_poll_s: float) -> None:
        self._cap = cap
        self._policy = policy
        self._cap_poll_s = cap_poll_s
        self._failed_at: deque[float] = deque(maxlen=policy.failures)
        self._opened_at: float | None = None
        self._probing_until = 0.0
        self._heard: Refusal | None = None
        self._heard_until = 0.0

    def share(self, workers: int) -> int | None:
        """Calls this process may have in flight; None without a cap."""
        return max(1, self._cap // max(1, workers)) if self._cap else None

    def heard(self, refusal: Refusal | None, *, now: float) -> None:
        """
        Remember what Redis last said, so that its loss does not open a shut provider. None: all is well.

        An operator's hold has no end here: only Redis, back again, can say that it is over.
        """
        self._heard = refusal
        if refusal is not None:
            self._heard_until = float("inf") if refusal.reason == "hold" else now + refusal.retry_in_s
        else:
            self._opened_at = None

    def close_gate(self, seconds: float, *, now: float) -> None:
        """Wait for the provider's sake; never shortens."""
        if self._heard is None or now + seconds > self._heard_until:
            self.heard(Refusal(reason="gate", retry_in_s=seconds), now=now)

    def enter(self, want: int, *, in_flight: int, workers: int, now: float) -> Grant | Refusal:
        """Ask for one window; `in_flight` is what this process has in flight now, however it was granted."""
        if self._heard is not None and now < self._heard_until:
            left_s = min(self._heard_until - now, self._policy.open_s)
            return Refusal(reason=self._heard.reason, retry_in_s=left_s)
        probe = False
        if self._opened_at is not None:
            tried_again_at = max(self._opened_at + self._policy.open_s, self._probing_until)
            if now < tried_again_at:
                return Refusal(reason="circuit", retry_in_s=tried_again_at - now)
            probe, want = True, 1
        share = self.share(workers)
        calls = want if share is None else min(want, share - in_flight)
        if calls < 1:
            return Refusal(reason="cap", retry_in_s=self._cap_poll_s)
        if probe:
            self._probing_until = now + self._policy.probe_lease_s
        return Grant(calls=calls, probe=probe)

    def results(self, *, successes: int, failures: int, probe: bool, now: float) -> None:
        """Count results; told at all times, so that the process knows its provider when Redis goes away."""
        if probe:
            self._probing_until = 0.0
            if failures:
                self._opened_at = now
            elif successes:
                self._opened_at = None
                self._failed_at.clear()
            return
        for _ in range(min(failures, self._policy.failures)):
            self._failed_at.append(now)
        full = len(self._failed_at) == self._policy.failures
        if failures and full and self._failed_at[0] > now - self._policy.window_s and self._opened_at is None:
            self._opened_at = now
            self._failed_at.clear()
