"""Sends and their deliveries as a tenant sees them, and what a tenant may do to a send."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.books import ChannelBooks
from shared.domain.masking import mask_text
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SELECT_SEND = statement("select_send")
_SELECT_PAGE = statement("select_send_page")
_SELECT_PAGE_OF_STATUS = statement("select_send_page_of_status")
_RESCHEDULE = statement("reschedule_send")
_CANCEL = statement("cancel_send")
_PAUSE = statement("pause_send_by_tenant")
_RESUME = statement("resume_send")
_SEND_EXISTS = statement("send_exists")
_SELECT_DELIVERIES = statement("select_delivery_page")
_SELECT_DELIVERIES_OF_STATUS = statement("select_delivery_page_of_status")
_SELECT_DELIVERY = statement("select_delivery")
_SELECT_ATTEMPTS = statement("select_attempts")

#: Sorts after every id.
NEWEST = UUID(int=(1 << 128) - 1)


@dataclass(frozen=True)
class SendSummary:
    """A send without its books. `accepted` is by channel."""

    id: UUID
    name: str | None
    status: SendStatus
    mode: Mode
    accepted: Mapping[str, int]
    created_at: datetime
    send_at: datetime | None
    completed_at: datetime | None
    cancelled_at: datetime | None


@dataclass(frozen=True)
class Send(SendSummary):
    """A send with its books, all read at one moment, `read_at`."""

    lane: Lane
    duplicates: Mapping[str, int]
    segments: int | None
    valid_until: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None
    resumed_at: datetime | None
    read_at: datetime
    books: Mapping[Channel, ChannelBooks]


@dataclass(frozen=True)
class Delivery:
    """One delivery of a send."""

    row_no: int
    channel: Channel
    status: DeliveryStatus
    address: str
    reference: str | None
    segments: int | None
    attempt_count: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    settled_at: datetime | None
    provider: str | None
    provider_ref: str | None
    receipt_status: str | None
    last_error: str | None


@dataclass(frozen=True)
class Attempt:
    """One call that reached a result, or whose result nobody learnt."""

    number: int
    provider: str
    outcome: str
    became: DeliveryStatus
    code: str | None
    detail: str | None
    provider_ref: str | None
    started_at: datetime
    ended_at: datetime
    evidence: dict[str, str] | None


def find(connection: Connection, *, tenant_id: int, send_id: UUID) -> Send | None:
    """A send with its books; None when it is not this tenant's."""
    row = connection.execute(_SELECT_SEND, {"send_id": send_id, "tenant_id": tenant_id}).fetchone()
    if row is None:
        return None
    counts: Mapping[str, Mapping[str, Any]] = row[20] or row[18] or {}
    return Send(
        id=row[0],
        name=row[1],
        status=SendStatus(row[2]),
        mode=Mode(row[3]),
        lane=Lane(row[4]),
        accepted=row[5],
        duplicates=row[6],
        segments=row[7],
        send_at=row[8],
        valid_until=row[9],
        created_at=row[10],
        queued_at=row[11],
        started_at=row[12],
        completed_at=row[13],
        cancelled_at=row[14],
        paused_at=row[15],
        pause_reason=row[16],
        resumed_at=row[17],
        read_at=row[19],
        books={
            Channel(channel): ChannelBooks.read(accepted, counts.get(channel, {}))
            for channel, accepted in row[5].items()
        },
    )


def page(
    connection: Connection, *, tenant_id: int, status: SendStatus | None, before: UUID, limit: int
) -> list[SendSummary]:
    """A tenant's sends, newest first, older than `before`."""
    parameters = {"tenant_id": tenant_id, "before": before, "limit": limit}
    if status is None:
        rows = connection.execute(_SELECT_PAGE, parameters)
    else:
        rows = connection.execute(_SELECT_PAGE_OF_STATUS, {**parameters, "status": status.value})
    return [SendSummary(row[0], row[1], SendStatus(row[2]), Mode(row[3]), *row[4:]) for row in rows]


def reschedule(connection: Connection, *, tenant_id: int, send_id: UUID, send_at: datetime | None) -> bool:
    """Move a send to another time, None for at once; False when it has begun, is over, or would expire first."""
    parameters = {"tenant_id": tenant_id, "send_id": send_id, "send_at": send_at}
    return connection.execute(_RESCHEDULE, parameters).fetchone() is not None


def cancel(connection: Connection, *, tenant_id: int, send_id: UUID) -> bool:
    """
    Stop a send for good; False when it was over already.

    Its deliveries are swept to `cancelled` afterwards; no call of it starts once this is committed.
    """
    return connection.execute(_CANCEL, {"tenant_id": tenant_id, "send_id": send_id}).fetchone() is not None


def pause(connection: Connection, *, tenant_id: int, send_id: UUID, reason: str, operator: str | None = None) -> bool:
    """
    Hold a send; False when it is held already or over. `operator` is who does it, None for the tenant itself.

    Addresses in the reason are masked.
    """
    parameters = {"tenant_id": tenant_id, "send_id": send_id, "reason": mask_text(reason), "operator": operator}
    return connection.execute(_PAUSE, parameters).fetchone() is not None


def resume(connection: Connection, *, tenant_id: int, send_id: UUID) -> bool:
    """Let a held send go on where it was; False when it was not held, or is being cancelled (`cancelling`)."""
    return connection.execute(_RESUME, {"tenant_id": tenant_id, "send_id": send_id}).fetchone() is not None


def exists(connection: Connection, *, tenant_id: int, send_id: UUID) -> bool:
    """Whether the send is this tenant's."""
    return connection.execute(_SEND_EXISTS, {"tenant_id": tenant_id, "send_id": send_id}).fetchone() is not None


def delivery_page(
    connection: Connection, *, send_id: UUID, status: DeliveryStatus | None, after: int, limit: int
) -> list[Delivery]:
    """Deliveries of a send by row number, above `after`. The caller has checked whose send it is."""
    parameters = {"send_id": send_id, "after": after, "limit": limit}
    if status is None:
        rows = connection.execute(_SELECT_DELIVERIES, parameters)
    else:
        rows = connection.execute(_SELECT_DELIVERIES_OF_STATUS, {**parameters, "status": status.value})
    return [_delivery(row) for row in rows]


def find_delivery(
    connection: Connection, *, tenant_id: int, send_id: UUID, row_no: int
) -> tuple[Delivery, list[Attempt]] | None:
    """A delivery and its attempts, oldest first; None when it is not this tenant's."""
    parameters = {"tenant_id": tenant_id, "send_id": send_id, "row_no": row_no}
    row = connection.execute(_SELECT_DELIVERY, parameters).fetchone()
    if row is None:
        return None
    attempts = connection.execute(_SELECT_ATTEMPTS, {"send_id": send_id, "row_no": row_no})
    return _delivery(row), [
        Attempt(attempt[0], attempt[1], attempt[2], DeliveryStatus(attempt[3]), *attempt[4:]) for attempt in attempts
    ]


def _delivery(row: tuple[Any, ...]) -> Delivery:
    return Delivery(row[0], Channel(row[1]), DeliveryStatus(row[2]), *row[3:])
