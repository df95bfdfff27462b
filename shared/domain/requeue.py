"""A person's requeue: what is asked for, in words too; what is left out and why; how a first few are tried. Pure."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from shared.domain.states import Channel, DeliveryStatus

#: What a person may requeue.
REQUEUEABLE = frozenset({DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED, DeliveryStatus.UNSURE})
#: What is meant unless somebody says otherwise. `unsure` may have been sent: it is only taken where it is named.
USUAL = frozenset({DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED})
#: Of a larger set these many go first, and the rest waits for what becomes of them.
CANARY_STEPS = (1, 11)
#: seconds; then the rest goes without an answer: what waits for a provider or a pause is not failing.
CANARY_PATIENCE_S = 120.0

#: Namespace of the ids that operations get from what was asked; a double click asks the same.
_REQUESTS = UUID("0d0e5a53-54a6-4a7e-9d2c-6d1b8d1d6a41")
_WORDS = {
    DeliveryStatus.FAILED: "failed",
    DeliveryStatus.DEAD_LETTERED: "dead-lettered",
    DeliveryStatus.UNSURE: "unsure",
}
_CHANNELS = {Channel.EMAIL: "e-mails", Channel.SMS: "text messages"}


class LeftOut(StrEnum):
    """Why a delivery is not requeued."""

    STATE = "state"
    LATE = "late"
    PROVING = "proving"
    UNSURE = "unsure"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    TAKEN = "taken"
    SUPPRESSED = "suppressed"
    MISSING = "missing"

    @property
    def words(self) -> str:
        """For people."""
        return {
            LeftOut.STATE: "in another state by now (sent, or requeued already)",
            LeftOut.LATE: "failed after the preview",
            LeftOut.PROVING: "still being proved",
            LeftOut.UNSURE: "may have been sent already; needs the acceptance of possible duplicates",
            LeftOut.REFUSED: "refused at acceptance: there is nothing to send it to",
            LeftOut.CANCELLED: "its send is cancelled",
            LeftOut.EXPIRED: "its send is past its valid_until",
            LeftOut.TAKEN: "part of another operation that is not done yet",
            LeftOut.SUPPRESSED: "its address is on the suppression list",
            LeftOut.MISSING: "no such delivery",
        }[self]


@dataclass(frozen=True, slots=True)
class RequeueFilter:
    """
    Which deliveries. All conditions hold at once; `ids` (send, row) stand for themselves.

    `signature` is that of the failure that settled the delivery; `since` counts from that moment.
    """

    ids: tuple[tuple[UUID, int], ...] = ()
    send_id: UUID | None = None
    tenant: str | None = None
    channel: Channel | None = None
    statuses: frozenset[DeliveryStatus] = USUAL
    signature: str | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        if not self.statuses or self.statuses - REQUEUEABLE:
            raise ValueError("only failed, dead-lettered and unsure deliveries can be requeued")

    def words(self) -> str:
        """The filter as a sentence's object."""
        kinds = " or ".join(_WORDS[status] for status in sorted(self.statuses))
        what = _CHANNELS[self.channel] if self.channel else "deliveries"
        if self.ids:
            one = len(self.ids) == 1
            text = (
                f"{len(self.ids):,} {'delivery' if one else 'deliveries'} named by {'its id' if one else 'their ids'}"
            )
            return f"{text}, if {kinds}"
        parts = [f"all {kinds} {what}"]
        if self.send_id:
            parts.append(f"of send {self.send_id}")
        if self.tenant:
            parts.append(f"of tenant {self.tenant}")
        if self.signature:
            parts.append(f"with cause {self.signature}")
        if self.since:
            parts.append(f"settled since {self.since:%Y-%m-%d %H:%M:%S %Z}")
        return " ".join(parts)

    def as_json(self) -> dict[str, Any]:
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
            "words": self.words(),
        }


def operation_id(asked: RequeueFilter, *, operator: str, as_of: datetime, accepts_duplicates: bool) -> UUID:
    """The id of the operation that this request is: the same for the same person, set and moment of the preview."""
    what = [operator, as_of.isoformat(), accepts_duplicates, asked.as_json()]
    return uuid5(_REQUESTS, json.dumps(what, sort_keys=True))


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Of the first ones: how many went, how many were tried again, how many of these failed for the same cause."""

    gone: int
    tried: int
    same_failure: int
    waited_s: float


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
    if 2 * result.same_failure > result.tried:
        tried, same = f"{result.tried:,}", f"{result.same_failure:,}"
        return CanaryStep(stop=f"of the first {tried} tried again {same} failed for the same cause as before")
    return CanaryStep(most=None if step is None else step - result.gone)
