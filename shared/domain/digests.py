"""Events, findings and the digests that tell them: the words, their order, and what a channel wants to hear."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

#: Items of one message; the rest is counted in it and carried to the next run.
DIGEST_CAP = 50
#: Characters.
MAX_KEY_CHARS, MAX_KIND_CHARS, MAX_SUBJECT_CHARS, MAX_SOURCE_CHARS = 255, 64, 300, 100
#: Characters of the JSON of an event's details.
MAX_DETAILS_CHARS = 4_000


class LogEvent(IntEnum):
    """The numbers of log lines about digests, 3600 to 3699, in the field `event_id`; others may alert on them."""

    DIGEST_SENT = 3600
    DIGEST_NOT_TAKEN = 3601
    BASELINE_TAKEN = 3602
    RUN_DONE = 3603
    CHANNEL_REFUSES = 3604
    NOTIFICATION_DEAD_LETTERED = 3605
    OUTCOME_UNKNOWN = 3606
    DIGEST_TAKEN_OVER = 3607
    CHANNEL_WAITS = 3608
    REQUEUED = 3609
    RETENTION_PROGRESS = 3610
    RETENTION_DONE = 3611
    RETENTION_INTERRUPTED = 3612
    RETENTION_LEFT_OUT = 3613


class Severity(StrEnum):
    """How much it matters, mildest first."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 is the mildest."""
        return list(Severity).index(self)


class ChannelType(StrEnum):
    """What a digest channel speaks."""

    WEBHOOK = "webhook"
    NTFY = "ntfy"
    GOTIFY = "gotify"
    SLACK = "slack"
    TEAMS = "teams"
    EMAIL = "email"


class NotificationStatus(StrEnum):
    """What is known of one thing to be told on one channel."""

    PENDING = "pending"
    RETRYING = "retrying"
    SENT = "sent"
    SUPPRESSED = "suppressed"
    DEAD_LETTERED = "dead_lettered"


#: Every edge a notification may take; it is made pending or, as part of a baseline, suppressed.
NOTIFICATION_EDGES = frozenset(
    [
        *(
            (source, target)
            for source in (NotificationStatus.PENDING, NotificationStatus.RETRYING)
            for target in (NotificationStatus.RETRYING, NotificationStatus.SENT, NotificationStatus.DEAD_LETTERED)
        ),
        (NotificationStatus.DEAD_LETTERED, NotificationStatus.PENDING),
    ]
)


class DigestStatus(StrEnum):
    """
    One message.

    `calling`: its call may be under way. `frozen`: it may have been taken; the same set is repeated under the same
    id. `failed`: surely not taken; what it held is told by a later message.
    """

    CALLING = "calling"
    FROZEN = "frozen"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Item:
    """
    One thing to be told. `over`: the finding behind it was not so any more when it was put into its message.

    `id` is the notification's, `owed_since` when it was found or last requeued.
    """

    id: int
    dedup_key: str
    kind: str
    subject: str
    severity: Severity
    details: dict[str, Any] | None
    finding: str | None
    occurred_at: datetime
    attempt_count: int
    owed_since: datetime
    over: bool = False


@dataclass(frozen=True, slots=True)
class Digest:
    """
    One message: its items, most severe first, and how many more are due and left to later ones.

    `id` names it to the receiver (the id of a webhook) and is the dispatch batch id of what it tells.
    """

    id: UUID
    channel: str
    created_at: datetime
    items: Sequence[Item]
    left: int = 0

    @property
    def title(self) -> str:
        """A line for people: `3 events, 1 of them critical`."""
        count = len(self.items)
        worst = max((item.severity for item in self.items), key=lambda severity: severity.rank)
        said = f"{count} {'event' if count == 1 else 'events'}"
        if worst.rank < Severity.HIGH.rank:
            return said
        of_it = sum(item.severity is worst for item in self.items)
        return f"{said}, {worst.value}" if count == 1 else f"{said}, {of_it} of them {worst.value}"


def in_order(items: Sequence[Item]) -> list[Item]:
    """Most severe first, then as they came."""
    return sorted(items, key=lambda item: (-item.severity.rank, item.id))
