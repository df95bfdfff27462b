"""The states of sends and deliveries, and the edges between them. docs/state-machine.md draws them."""

from enum import StrEnum


class Channel(StrEnum):
    """How a delivery travels."""

    EMAIL = "email"
    SMS = "sms"


class Lane(StrEnum):
    """Which queues a send uses; fixed at acceptance."""

    SINGLE = "single"
    BULK = "bulk"


class Mode(StrEnum):
    """What a key may reach: a test key's sends go to the sandbox and nowhere else."""

    LIVE = "live"
    TEST = "test"


class SendStatus(StrEnum):
    """One submission's state."""

    PENDING = "pending"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    SENDING = "sending"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class DeliveryStatus(StrEnum):
    """What is known of one owed delivery; `words` says it to people, everywhere alike."""

    OWED = "owed"
    SENDING = "sending"
    RETRYING = "retrying"
    SENT = "sent"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"
    UNSURE = "unsure"
    SUPPRESSED = "suppressed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def words(self) -> str:
        """As the pages and files write it."""
        return self.value.replace("_", "-")


class SendEventKind(StrEnum):
    """What may happen to a send beside its own course."""

    WORKER_DIED = "worker_died"
    WORKER_HUNG = "worker_hung"
    OUTCOME_LOST = "outcome_lost"
    MESSAGE_LOST = "message_lost"
    OVERDUE = "overdue"
    GIVEN_UP = "recovery_given_up"
    OUTAGE_WAITED_OUT = "outage_waited_out"
    DRAINED = "drained"


#: A delivery in one of these may still be called by the machine.
OPEN = frozenset({DeliveryStatus.OWED, DeliveryStatus.SENDING, DeliveryStatus.RETRYING})
#: A delivery in one of these leaves it only by a person, or by late proof.
SETTLED = frozenset(DeliveryStatus) - OPEN

#: Every edge a delivery may take.
DELIVERY_EDGES: frozenset[tuple[DeliveryStatus, DeliveryStatus]] = frozenset(
    [
        *((source, DeliveryStatus.SENDING) for source in (DeliveryStatus.OWED, DeliveryStatus.RETRYING)),
        *(
            (source, target)
            for source in (DeliveryStatus.OWED, DeliveryStatus.RETRYING)
            for target in (
                DeliveryStatus.SENT,
                DeliveryStatus.CANCELLED,
                DeliveryStatus.EXPIRED,
                DeliveryStatus.SUPPRESSED,
                DeliveryStatus.FAILED,
                DeliveryStatus.DEAD_LETTERED,
            )
        ),
        *(
            (DeliveryStatus.SENDING, target)
            for target in (
                DeliveryStatus.OWED,
                DeliveryStatus.RETRYING,
                DeliveryStatus.SENT,
                DeliveryStatus.FAILED,
                DeliveryStatus.DEAD_LETTERED,
                DeliveryStatus.UNSURE,
                DeliveryStatus.SUPPRESSED,
            )
        ),
        *(
            (DeliveryStatus.UNSURE, target)
            for target in (
                DeliveryStatus.SENT,
                DeliveryStatus.OWED,
                DeliveryStatus.RETRYING,
                DeliveryStatus.FAILED,
                DeliveryStatus.DEAD_LETTERED,
                DeliveryStatus.SUPPRESSED,
            )
        ),
        (DeliveryStatus.FAILED, DeliveryStatus.OWED),
        (DeliveryStatus.DEAD_LETTERED, DeliveryStatus.OWED),
    ]
)

#: Every edge a send may take.
SEND_EDGES: frozenset[tuple[SendStatus, SendStatus]] = frozenset(
    [
        *(
            (source, target)
            for source in (SendStatus.PENDING, SendStatus.QUEUED)
            for target in (SendStatus.SCHEDULED, SendStatus.SENDING)
        ),
        (SendStatus.SCHEDULED, SendStatus.SENDING),
        *(
            (source, target)
            for source in (SendStatus.PENDING, SendStatus.QUEUED, SendStatus.SCHEDULED, SendStatus.SENDING)
            for target in (SendStatus.PAUSED, SendStatus.CANCELLED)
        ),
        *(
            (SendStatus.PAUSED, target)
            for target in (SendStatus.QUEUED, SendStatus.SCHEDULED, SendStatus.SENDING, SendStatus.CANCELLED)
        ),
        (SendStatus.SENDING, SendStatus.COMPLETED),
        (SendStatus.COMPLETED, SendStatus.SENDING),
    ]
)
