"""
What becomes of a delivery that may have been taken: the one place where the rule of proving or parking lives.

    Resolution                how a provider lets an unknown outcome be found out
    ├── Replay                the same message under the same key gives the first answer again, for a while
    ├── Lookup                the provider finds by our key; absence counts only late
    ├── Callback              only its receipt, or a listing after it stayed out, can tell
    └── Nothing               nobody will ever tell

    Proof                     what one look found
    ├── Taken                 the provider has it
    ├── Absent                the provider does not know it at this moment
    ├── Refused               surely not taken, or given up by the provider, with the outcome that a call would have had
    ├── Pending               nothing yet: look again
    └── Unprovable            no way is left

ADR-0007 says why nothing is ever sent again on a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from shared.domain.outcome import Accepted, Ambiguous, Configuration, NotAttempted, Outcome, Throttled
from shared.domain.receipts import ReceiptStatus
from shared.domain.retry import Attempt, RetryPolicy, decide
from shared.domain.states import DeliveryStatus

#: absences that must be seen before absence is believed: one look alone may meet a replica that lags.
FEWEST_ABSENCES = 2
#: seconds between two looks where the provider, or the answer, names no other time.
_LOOK_AGAIN_S = 60.0
#: seconds for which a row waits for its account to be configured again before a person is asked.
ACCOUNT_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Replay:
    """
    A repeat inside `window_s` of the call is answered as the call was; after it a receipt may come until `wait_s`.

    `every_s` lies between two repeats, and before the first.
    """

    window_s: float
    wait_s: float
    every_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Lookup:
    """
    Looks `waits_s` apart, the last wait repeated. A message that is nowhere `absent_after_s` after the call was lost.

    Absence says nothing before: a provider goes on working on a request whose caller has left.
    """

    waits_s: tuple[float, ...]
    absent_after_s: float


@dataclass(frozen=True, slots=True)
class Callback:
    """A receipt that carries our id is awaited for `wait_s`; then the provider's own list is looked through."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Nothing:
    """No answer will ever come: a person decides, with the evidence."""


Resolution = Replay | Lookup | Callback | Nothing


@dataclass(frozen=True, slots=True)
class Taken:
    """
    The provider has the message. `receipt` is what became of it there, where the provider said so.

    `by_likeness`: it was told by its looks and not by our key, so it may be another delivery's.
    """

    ref: str | None
    detail: str = ""
    receipt: ReceiptStatus | None = None
    by_likeness: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """The provider does not know the message at this moment."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The message was not taken, or was given up: `outcome` is what a call would have come to."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Pending:
    """
    Nothing is known yet; `again_s` seconds until another look is worth it, None where any time will do.

    `failed`: the provider did not answer the look. `asked`: False where it was not asked, so that this says nothing of
    how it is.
    """

    detail: str
    again_s: float | None = None
    failed: bool = False
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Unprovable:
    """Nothing will be found out this way; `evidence` helps the person who decides. `asked`: as in `Pending`."""

    detail: str
    evidence: Mapping[str, str] = field(default_factory=dict)
    asked: bool = True


Proof = Taken | Absent | Refused | Pending | Unprovable


@dataclass(frozen=True, slots=True)
class Asked:
    """
    The delivery a proof is about.

    `attempts` includes the call in question, which began at `attempt_at`; `absences` is how often the provider did
    not know it so far; `lost_since` is when it began to lose this delivery's messages, each time provably, if it did.
    """

    attempts: int
    attempt_at: datetime
    absences: int
    lost_since: datetime | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What the row becomes. `unsure` with `prove_at`: looked at again then; without: parked for a person.

    `uses_attempt` False gives the call's attempt back. `code` and `outcome` describe it on the attempt's row.
    `by_likeness`: as in `Taken`.
    """

    status: DeliveryStatus
    code: str
    detail: str
    uses_attempt: bool = True
    next_attempt_at: datetime | None = None
    prove_at: datetime | None = None
    saw_absence: bool = False
    ref: str | None = None
    receipt: ReceiptStatus | None = None
    by_likeness: bool = False
    outcome: Outcome | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def settles(self) -> bool:
        """Whether the row is not looked at again by itself."""
        return self.prove_at is None


def was_asked(proof: Proof) -> bool:
    """Whether the provider was asked at all: only then does a look say how it is."""
    return proof.asked if isinstance(proof, Pending | Unprovable) else True


def first_look_s(resolution: Resolution) -> float | None:
    """Seconds between an unknown outcome and the first look; None where a look would find nothing."""
    match resolution:
        case Replay():
            return resolution.every_s
        case Lookup():
            return resolution.waits_s[0]
        case Callback():
            return resolution.wait_s
        case Nothing():
            return None
        case _:
            assert_never(resolution)


def judge(
    proof: Proof, resolution: Resolution, asked: Asked, policy: RetryPolicy, *, now: datetime, jitter: float
) -> Verdict:
    """
    Decide what a look makes of an unsure delivery.

    Pure. `now` is aware; `jitter` is in [0, 1). Looks go on for as long as an outage is waited out
    (MAX_OUTAGE_WAIT_HOURS), then the row is parked.
    """
    match proof:
        case Taken():
            return Verdict(
                DeliveryStatus.SENT,
                "proved_taken",
                proof.detail or "proved taken",
                ref=proof.ref,
                receipt=proof.receipt,
                by_likeness=proof.by_likeness,
            )
        case Refused():
            return _refused(proof.outcome, resolution, asked, policy, now=now, jitter=jitter)
        case Absent():
            return _absent(proof, resolution, asked, policy, now=now)
        case Pending():
            return _look_again(proof, resolution, asked, policy, now=now)
        case Unprovable():
            return Verdict(DeliveryStatus.UNSURE, "unprovable", proof.detail, evidence=proof.evidence)
        case _:
            assert_never(proof)


def _refused(
    outcome: Outcome, resolution: Resolution, asked: Asked, policy: RetryPolicy, *, now: datetime, jitter: float
) -> Verdict:
    if isinstance(outcome, Accepted | Ambiguous | NotAttempted | Throttled | Configuration):
        # These say nothing of the call in question.
        return _look_again(
            Pending(f"a look came to {type(outcome).__name__.lower()}"), resolution, asked, policy, now=now
        )
    attempt = Attempt(asked.attempts - 1, now, False, False)  # noqa: FBT003  # a look is no outage, however late
    decision = decide(outcome, attempt, policy, now=now, jitter=jitter)
    return Verdict(
        decision.status,
        outcome.code,
        decision.reason or outcome.detail,
        uses_attempt=decision.uses_attempt,
        next_attempt_at=decision.next_attempt_at,
        outcome=outcome,
    )


def _absent(proof: Absent, resolution: Resolution, asked: Asked, policy: RetryPolicy, *, now: datetime) -> Verdict:
    if not isinstance(resolution, Lookup):
        return Verdict(DeliveryStatus.UNSURE, "unprovable", proof.detail or "the provider shows no such message")
    seen = asked.absences + 1
    left_s = resolution.absent_after_s - (now - asked.attempt_at).total_seconds()
    if seen < FEWEST_ABSENCES or left_s > 0:
        wait_s = resolution.waits_s[min(seen, len(resolution.waits_s) - 1)]
        return Verdict(
            DeliveryStatus.UNSURE,
            "not_there_yet",
            proof.detail or "the provider does not know it yet",
            prove_at=now + timedelta(seconds=wait_s),
            saw_absence=True,
        )
    if asked.lost_since is not None and (now - asked.lost_since).total_seconds() >= policy.max_outage_wait_s:
        hours = policy.max_outage_wait_s / 3600
        detail = f"the provider lost it again and again for {hours:g} h (MAX_OUTAGE_WAIT_HOURS)"
        return Verdict(DeliveryStatus.DEAD_LETTERED, "proved_absent", detail, uses_attempt=False)
    detail = proof.detail or "proved absent: the provider never had it"
    return Verdict(DeliveryStatus.OWED, "proved_absent", detail, uses_attempt=False, saw_absence=True)


def _look_again(proof: Pending, resolution: Resolution, asked: Asked, policy: RetryPolicy, *, now: datetime) -> Verdict:
    elapsed_s = (now - asked.attempt_at).total_seconds()
    again_s = _LOOK_AGAIN_S if proof.again_s is None else proof.again_s
    limit_s = policy.max_outage_wait_s
    if isinstance(resolution, Replay):
        limit_s = resolution.wait_s
        again_s = resolution.every_s if proof.again_s is None else proof.again_s
        if elapsed_s + again_s >= resolution.window_s:
            again_s = resolution.wait_s - elapsed_s  # repeats end here; a receipt may still come
    if elapsed_s >= limit_s:
        return Verdict(DeliveryStatus.UNSURE, "unprovable", proof.detail)
    return Verdict(DeliveryStatus.UNSURE, "pending", proof.detail, prove_at=now + timedelta(seconds=max(again_s, 1.0)))
