"""A person's bulk operation: what is asked for, in words too; what is left out and why; how a few go first. Pure."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.states import Channel, DeliveryStatus

#: What a person may requeue.
REQUEUEABLE = frozenset({DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED, DeliveryStatus.UNSURE})
#: What is meant unless somebody says otherwise. `unsure` may have been sent: it is only taken where it is named.
USUAL = frozenset({DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED})
#: Deliveries above which a requeue needs a reason, and above which their number is typed.
REASON_ABOVE, TYPED_ABOVE = 100, 1_000
#: Of a larger set these many go first, and the rest waits for what becomes of them.
CANARY_STEPS = (1, 11)
#: seconds; then the rest goes without an answer: what waits for a provider or a pause is not failing.
CANARY_PATIENCE_S = 120.0
#: Deliveries and sends given back to the queues per second, over all workers: below what the fleet sends, so that
#: what comes in meanwhile does not wait behind a day's failures. Each send costs a message of its own.
_DELIVERIES_PER_S, _SENDS_PER_S = 2_000, 200
#: Deliveries discarded or restored per second: nothing waits for these, and the ledger has other things to do.
_MARKED_PER_S = 4_000

#: Namespace of the ids that operations get from what was asked; a double click asks the same.
_REQUESTS = UUID("0d0e5a53-54a6-4a7e-9d2c-6d1b8d1d6a41")
_CHANNELS = {Channel.EMAIL: "e-mails", Channel.SMS: "text messages"}


class OperationKind(StrEnum):
    """What is done to each delivery of a set."""

    REQUEUE = "requeue"
    DISCARD = "discard"
    RESTORE = "restore"

    @property
    def verb(self) -> str:
        """As a button says it."""
        return self.value.capitalize()

    @property
    def done(self) -> str:
        """As a result says it."""
        return {
            OperationKind.REQUEUE: "requeued",
            OperationKind.DISCARD: "discarded",
            OperationKind.RESTORE: "restored",
        }[self]

    @property
    def doing(self) -> str:
        """As a banner says it."""
        return {
            OperationKind.REQUEUE: "Requeueing",
            OperationKind.DISCARD: "Discarding",
            OperationKind.RESTORE: "Restoring",
        }[self]

    def needs_reason(self, count: int) -> bool:
        """Whether somebody must say why."""
        return self is OperationKind.DISCARD or count > REASON_ABOVE


class LeftOut(StrEnum):
    """Why a delivery is left as it is."""

    STATE = "state"
    LATE = "late"
    PROVING = "proving"
    UNSURE = "unsure"
    REPORTED = "reported"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    TAKEN = "taken"
    SUPPRESSED = "suppressed"
    DISCARDED = "discarded"
    KEPT = "kept"
    MORE = "more"
    MISSING = "missing"

    @property
    def words(self) -> str:
        """For people."""
        return {
            LeftOut.STATE: "in another state by now (sent, or requeued already)",
            LeftOut.LATE: "failed after the preview",
            LeftOut.PROVING: "still being proved",
            LeftOut.UNSURE: "may have been sent already; needs the acceptance of possible duplicates",
            LeftOut.REPORTED: "taken after all, its provider reported; only by its id, accepting a possible duplicate",
            LeftOut.REFUSED: "refused at acceptance: there is nothing to send it to",
            LeftOut.CANCELLED: "its send is cancelled",
            LeftOut.EXPIRED: "its send is past its valid_until",
            LeftOut.TAKEN: "part of another operation that is not done yet",
            LeftOut.SUPPRESSED: "its address is on the suppression list",
            LeftOut.DISCARDED: "discarded",
            LeftOut.KEPT: "not discarded",
            LeftOut.MORE: "beyond the first few that were asked for",
            LeftOut.MISSING: "no such delivery, or retention is removing it",
        }[self]


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """
    Which deliveries. All conditions hold at once; `ids` (send, row) stand for themselves.

    `signature` is that of the failure that settled the delivery, `cause` its title, for words alone; `since` counts
    from that moment. `recipient` is the ledger's hash of an address, in hexadecimal digits. `operation` asks for what
    is a failure after that operation did its work on it. `first` takes so many of the newest and leaves the others.
    """

    ids: tuple[tuple[UUID, int], ...] = ()
    send_id: UUID | None = None
    tenant: str | None = None
    channel: Channel | None = None
    statuses: frozenset[DeliveryStatus] = USUAL
    signature: str | None = None
    since: datetime | None = None
    provider: str | None = None
    recipient: str | None = None
    operation: UUID | None = None
    first: int | None = None
    cause: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.statuses or self.statuses - REQUEUEABLE:
            raise ValueError("only failed, dead-lettered and unsure deliveries can be requeued")

    def words(self, kind: OperationKind | None = None) -> str:
        """The filter as a sentence's object; a restore takes only what was discarded, and says so."""
        kinds = " or ".join(status.words for status in sorted(self.statuses))
        if kind is OperationKind.RESTORE:
            kinds = f"discarded ({kinds})"
        what = _CHANNELS[self.channel] if self.channel else "deliveries"
        if self.ids:
            one = len(self.ids) == 1
            text = (
                f"{len(self.ids):,} {'delivery' if one else 'deliveries'} named by {'its id' if one else 'their ids'}"
            )
            return f"{text}, if {kinds}"
        parts = [f"the {self.first:,} newest {kinds} {what}" if self.first else f"all {kinds} {what}"]
        if self.send_id:
            parts.append(f"of send {self.send_id}")
        if self.tenant:
            parts.append(f"of tenant {self.tenant}")
        if self.provider:
            parts.append(f"by {self.provider}")
        if self.recipient:
            parts.append("to one recipient")
        if self.signature:
            parts.append(f"with cause {f'“{self.cause}”' if self.cause else self.signature}")
        if self.operation:
            parts.append(f"left by operation {str(self.operation)[:8]}")
        if self.since:
            parts.append(f"settled since {self.since:%Y-%m-%d %H:%M:%S %Z}")
        return " ".join(parts)

    def as_json(self, kind: OperationKind | None = None) -> dict[str, Any]:
        """For the ledger; of ids their number and a digest, since the operation's items are the ids themselves."""
        named = "\n".join(f"{send_id}.{row_no}" for send_id, row_no in sorted(self.ids))
        return {
            "ids": {"count": len(self.ids), "sha256": hashlib.sha256(named.encode()).hexdigest()} if self.ids else None,
            "send_id": str(self.send_id) if self.send_id else None,
            "tenant": self.tenant,
            "channel": self.channel.value if self.channel else None,
            "statuses": sorted(status.value for status in self.statuses),
            "signature": self.signature,
            "since": self.since.isoformat() if self.since else None,
            "provider": self.provider,
            "recipient": self.recipient,
            "operation": str(self.operation) if self.operation else None,
            "first": self.first,
            "words": self.words(kind),
        }


def operation_id(
    kind: OperationKind,
    asked: FailureFilter | DeadLetterFilter,
    *,
    operator: str,
    as_of: datetime,
    accepts_duplicates: bool,
) -> UUID:
    """The id of the operation that this request is: the same for the same person, set and moment of the preview."""
    meant = {name: value for name, value in asked.as_json().items() if name != "words"}  # a cause may be named anew
    what = [kind.value, operator, as_of.isoformat(), accepts_duplicates, meant]
    return uuid5(_REQUESTS, json.dumps(what, sort_keys=True))


def seconds_for(deliveries: int, sends: int, *, kind: OperationKind) -> float:
    """Seconds that an operation on so many deliveries of so many sends takes at its pace, without the first few."""
    if kind is not OperationKind.REQUEUE:
        return deliveries / _MARKED_PER_S
    return max(deliveries / _DELIVERIES_PER_S, sends / _SENDS_PER_S)


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """
    Of the first ones: how many went, how many were tried again, how many of these failed for the same cause.

    `other_failures`: tried again and failed for good, for another cause.
    """

    gone: int
    tried: int
    same_failure: int
    waited_s: float
    other_failures: int = 0


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """How many may go now (None: as many as one likes), or for what reason the rest stays as it is."""

    most: int | None = None
    stop: str | None = None


def canary_step(result: CanaryResult) -> CanaryStep:
    """Decide how an operation that tries a first few goes on; `most` 0 means wait."""
    step = next((step for step in CANARY_STEPS if result.gone < step), None)
    if result.gone not in CANARY_STEPS:
        return CanaryStep(most=None if step is None else step - result.gone)
    if result.tried < result.gone and result.waited_s < CANARY_PATIENCE_S:
        return CanaryStep(most=0)
    # One alone that fails for another cause may be like no other.
    others = result.other_failures if result.gone == CANARY_STEPS[-1] else 0
    if 2 * (result.same_failure + others) > result.tried:
        if result.tried == 1:
            how = "for the same cause as before" if result.same_failure else "for good for another cause"
            return CanaryStep(stop=f"the first one that was tried again failed {how}")
        stop = f"of the first {result.tried:,} tried again {result.same_failure:,} failed for the same cause as before"
        return CanaryStep(stop=f"{stop}, {others:,} for good for another" if others else stop)
    return CanaryStep(most=None if step is None else step - result.gone)
