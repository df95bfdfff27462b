"""
The guards of one provider: gate, circuit and slots, asked once per window in one round trip.

    entered = guards.enter(Lane.BULK, 25)
    if isinstance(entered, Held): …                        # wait, come back in entered.retry_in_s
    try:
        …; guards.report(entered, ended=8, successes=7, failures=1)
    finally:
        guards.leave(entered)                              # an interrupt hands back slots and probe

`enter` and `report` never fail: while Redis cannot be asked, the process goes on alone with its share of the cap.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pybreaker

from shared.coordination import keys
from shared.coordination.circuit import Admitted, Circuit, Probe
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.gate import Gate
from shared.coordination.local_share import HeldReason, LocalShare, Refusal
from shared.coordination.periodic import Periodic
from shared.coordination.redis import RedisLink, RedisUnavailable, Script
from shared.coordination.slot_waits import SlotWaits
from shared.coordination.slots import LEASE_S, Slots, window_token
from shared.domain.states import Lane

_log = logging.getLogger(__name__)
_ENTER = Script("guard_enter", "circuit", "slots")
_REPORT = Script("guard_report", "circuit", "circuit_results", "slots")
_RENEW = Script("guard_renew", "circuit", "slots")

_HELD: dict[str, HeldReason] = {"gate": "gate", "circuit": "circuit", "isolated": "isolated", "hold": "hold"}

#: Seconds after which asking again for a slot is worthwhile: slots come free one by one as calls end.
CAP_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Entered:
    """
    A window may make `slots` calls; exactly one where the permit is a `Probe`.

    `alone`: granted without Redis, out of this process's share.
    """

    permit: Admitted | Probe
    slots: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """
    No call may be made, and no attempt is burned; ask again in `retry_in_s`, with jitter of the caller's.

    `alone`: this process says so by itself, while Redis is away.
    """

    reason: HeldReason
    retry_in_s: float
    alone: bool = False


class Guards:
    """
    What stands before one provider and credential in this process; its threads share it.

    A thread renews the leases of the windows in flight, so that leases may be far shorter than calls: a dead
    process loses its slots within `lease_s`, a slow one never does.
    """

    def __init__(
        self,
        link: RedisLink,
        *,
        provider: str,
        credential: str,
        cap: int | None = None,
        reserved: int = 0,
        policy: CircuitPolicy | None = None,
        lease_s: float = LEASE_S,
        cap_poll_s: float = CAP_POLL_S,
        namespace: str = keys.NAMESPACE,
        listeners: Sequence[pybreaker.CircuitBreakerListener] = (),
    ) -> None:
        named = {"provider": provider, "credential": credential, "namespace": namespace}
        self.circuit = Circuit(link, policy=policy, listeners=listeners, **named)
        self.gate = Gate(link, **named)
        self.slots = Slots(link, cap=cap, reserved=reserved, lease_s=lease_s, **named)
        self.waits = SlotWaits(link, **named)
        #: Windows entered without Redis since the start, for the metrics.
        self.windows_alone = 0
        self._link = link
        self._part = keys.provider_part(provider, credential)
        self._keys = tuple(
            key.name(namespace, provider=self._part)
            for key in (keys.GATE, keys.CIRCUIT, keys.CIRCUIT_FAILURES, keys.SLOT_LEASES, keys.SLOT_COUNTS)
        )
        policy = self.circuit.policy
        self._cap_poll_s = cap_poll_s
        lease_ms, open_ms, probe_ms = (round(s * 1000) for s in (lease_s, policy.open_s, policy.probe_lease_s))
        self._enter_args = (self.slots.cap, self.slots.reserved, lease_ms, open_ms, probe_ms)
        self._renew_args = (self.slots.cap, lease_ms, probe_ms)
        self._lock = threading.Lock()
        self._in_flight: dict[str, int] = {}
        self._local = LocalShare(cap=self.slots.cap, policy=policy, cap_poll_s=cap_poll_s)
        self._workers = 1
        self._renewal = Periodic(f"renew {self._part}", min(lease_s, policy.probe_lease_s) / 3, self.renew)

    def enter(self, lane: Lane, want: int) -> Entered | Held:
        """Ask for a window of up to `want` calls (at least 1)."""
        if want < 1:
            raise ValueError("a window makes at least one call")
        token = window_token(lane)
        gate, circuit, _failures, leases, counts = self._keys
        try:
            answer = self._link.run(_ENTER, keys=(gate, circuit, leases, counts), args=(token, want, *self._enter_args))
        except RedisUnavailable:
            return self._enter_alone(token, want)
        return self._entered(token, *answer)

    def report(self, entered: Entered, *, ended: int, successes: int = 0, failures: int = 0) -> None:
        """
        Some calls of the window ended: give back their slots and tell the circuit.

        A permanent error is a success; recipient-scope failures and throttling are neither. A probe's one
        call is told once. Costs nothing where there is no cap and no failure.
        """
        token, probing = entered.permit.token, isinstance(entered.permit, Probe)
        with self._lock:
            left = max(0, self._in_flight.get(token, 0) - ended)
            if left:
                self._in_flight[token] = left
            else:
                self._in_flight.pop(token, None)
            self._local.results(successes=successes, failures=failures, probe=probing, now=time.monotonic())
        if not (probing or failures or (self.slots.cap and ended)):
            return
        results = (token, entered.permit.epoch, int(probing), ended, successes, failures)
        try:
            state = self._link.run(_REPORT, keys=self._keys[1:], args=(*results, *self.circuit.limit_args()))
        except RedisUnavailable:
            return  # the lease runs out by itself, and so does the probe's
        self.circuit.observe(state)

    def leave(self, entered: Entered, *, successes: int = 0, failures: int = 0) -> None:
        """End the window: give back what it still holds, a probe without a result too. Does nothing twice."""
        with self._lock:
            left = self._in_flight.get(entered.permit.token)
        if left is not None:
            self.report(entered, ended=left, successes=successes, failures=failures)

    def throttle(self, closed_s: float, *, grows_to_s: float | None = None) -> float:
        """Close the gate as `shared.domain.retry` decided (see `Gate.close`); the seconds it stays closed."""
        with self._lock:
            self._local.close_gate(closed_s, now=time.monotonic())
        try:
            return self.gate.close(closed_s, grows_to_s=grows_to_s)
        except RedisUnavailable:
            return closed_s

    def isolate(self, entered: Entered, *, reason: str, code: str) -> None:
        """A call met a configuration error of provider scope: nothing more goes through until it is looked at again."""
        recheck_s = self.circuit.policy.recheck_s
        with self._lock:
            self._local.heard(Refusal(reason="isolated", retry_in_s=recheck_s), now=time.monotonic())
        try:
            self.circuit.isolate(reason=reason, code=code, permit=entered.permit)
        except RedisUnavailable:
            return

    def waited(self, seconds: float) -> None:
        """Count how long a window waited for its slots; nothing where there is no cap."""
        if self.slots.cap:
            self.waits.count(seconds)

    def known_workers(self, count: int) -> None:
        """Note how many worker processes share the provider: the divisor of the cap while Redis is away."""
        self._workers = max(1, count)

    def renew(self) -> int:
        """Renew the leases of the windows in flight; how many had been lost. Called by the guards' own thread."""
        with self._lock:
            windows = dict(self._in_flight)
        if not windows:
            return 0
        _gate, circuit, _failures, leases, counts = self._keys
        pairs = [part for window in windows.items() for part in window]
        lost = int(self._link.run(_RENEW, keys=(circuit, leases, counts), args=(*self._renew_args, *pairs)))
        with self._lock:
            gone = [token for token in windows if token not in self._in_flight]
        for token in gone:  # left while we renewed: a lease written again would outlive its window
            self.slots.release(token, windows[token])
        return lost

    def close(self) -> None:
        """Stop renewing; the windows still in flight lose their leases in time."""
        self._renewal.stop()

    def _entered(self, token: str, verdict: str, wait_ms: int, calls: int, epoch: str, state: str) -> Entered | Held:
        self.circuit.observe(state)
        now = time.monotonic()
        if verdict in ("in", "probe"):
            with self._lock:
                self._in_flight[token] = calls
                self._local.heard(None, now=now)
            self._renewal.start()
            permit = Probe(token, epoch) if verdict == "probe" else Admitted(token, epoch)
            return Entered(permit=permit, slots=calls)
        if verdict == "cap":
            return Held(reason="cap", retry_in_s=self._cap_poll_s)
        refusal = Refusal(reason=_HELD[verdict], retry_in_s=wait_ms / 1000)
        with self._lock:
            self._local.heard(refusal, now=now)
        return Held(reason=refusal.reason, retry_in_s=refusal.retry_in_s)

    def _enter_alone(self, token: str, want: int) -> Entered | Held:
        with self._lock:
            answer = self._local.enter(
                want, in_flight=sum(self._in_flight.values()), workers=self._workers, now=time.monotonic()
            )
            if isinstance(answer, Refusal):
                return Held(reason=answer.reason, retry_in_s=answer.retry_in_s, alone=True)
            self._in_flight[token] = answer.calls
            self.windows_alone += 1
        self._renewal.start()  # so that Redis, once back, learns of these calls
        permit = Probe(token, "") if answer.probe else Admitted(token, "")
        return Entered(permit=permit, slots=answer.calls, alone=True)
