"""What becomes of a digest and of each thing in it after its call: the plain rule of `shared.domain.retry`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from shared.domain.digests import DigestStatus, Item, NotificationStatus
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from shared.domain.retry import Attempt, RetryPolicy, decide
from shared.domain.states import DeliveryStatus


@dataclass(frozen=True, slots=True)
class Fate:
    """What an item becomes; `next_attempt_at` is set while it is to be told again."""

    item: Item
    status: NotificationStatus
    attempt_count: int
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class Judged:
    """
    What a digest becomes.

    `fates` names the items that change; the others stay as they were, due as before. `waits_s`: no call to this
    channel before so many seconds. `refused`: the channel is not set up right, which is no item's failure.
    """

    status: DigestStatus
    fates: list[Fate] = field(default_factory=list)
    next_attempt_at: datetime | None = None
    waits_s: float | None = None
    refused: bool = False


def judge(
    outcome: Outcome, items: Sequence[Item], policy: RetryPolicy, *, now: datetime, maybe_known: bool = False
) -> Judged:
    """
    Decide what becomes of a digest. `maybe_known`: an earlier call with the same set may have been taken.

    Pure. Every failure uses an attempt up, whoever's it is: an endpoint has no one else to take messages for. Being
    told to slow down uses none, and neither does a channel that is not set up right. What may have been taken stays
    together and is repeated as it was, when the longest backoff among its items is over.

    Source: seed rule (base × 2^(n−1), dead-lettered at the last attempt); ADR-0012.
    """
    untouched = Judged(DigestStatus.FROZEN, next_attempt_at=now) if maybe_known else Judged(DigestStatus.FAILED)
    match outcome:
        case Accepted():
            told = [Fate(item, NotificationStatus.SENT, item.attempt_count + 1, None) for item in items]
            return Judged(DigestStatus.SENT, told)
        case Throttled():
            return replace(untouched, waits_s=policy.clamp_retry_after_s(outcome.retry_after_s))
        case Configuration():
            return replace(untouched, refused=True)
        case NotAttempted():
            return untouched
        case Transient() | Permanent() | Suppressed() | Ambiguous():
            wish = outcome.retry_after_s if isinstance(outcome, Transient) else None
            fates = _failed(wish, items, policy, now)
            if maybe_known or isinstance(outcome, Ambiguous):
                return _frozen(fates)
            return Judged(DigestStatus.FAILED, fates)
        case _:
            assert_never(outcome)


def _failed(retry_after_s: float | None, items: Sequence[Item], policy: RetryPolicy, now: datetime) -> list[Fate]:
    failure = Transient(Scope.RECIPIENT, "failed", retry_after_s=retry_after_s)
    fates = []
    for item in items:
        tried = Attempt(item.attempt_count, item.owed_since, provider_took_since=True, is_probe=False)
        decision = decide(failure, tried, policy, now=now, jitter=0.0)
        dead = decision.status is DeliveryStatus.DEAD_LETTERED
        status = NotificationStatus.DEAD_LETTERED if dead else NotificationStatus.RETRYING
        fates.append(Fate(item, status, item.attempt_count + 1, decision.next_attempt_at))
    return fates


def _frozen(fates: list[Fate]) -> Judged:
    again = [fate.next_attempt_at for fate in fates if fate.next_attempt_at is not None]
    if not again:
        return Judged(DigestStatus.FAILED, fates)
    last = max(again)
    together = [
        fate if fate.next_attempt_at is None else Fate(fate.item, fate.status, fate.attempt_count, last)
        for fate in fates
    ]
    return Judged(DigestStatus.FROZEN, together, next_attempt_at=last)
