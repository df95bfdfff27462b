"""
Store a submission: deliveries by COPY, then the send and its batches, in one transaction of the caller's.

The transaction's commit is what makes the send owed. Until then nobody sees a row of it, and a fault found
half-way rolls all of it back.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.states import Channel, DeliveryStatus, Lane, Mode
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_COPY_DELIVERIES = statement("copy_deliveries")
_INSERT_SEND = statement("insert_send")
_INSERT_BATCHES = statement("insert_batches")


class AcceptedRow(NamedTuple):
    """
    One delivery to be stored, numbered from 1 over all channels.

    `address` is the normalised one (an international domain in its ASCII form); `params` is JSON text. A row
    with an `error` is stored as failed for that reason, which holds no address.
    """

    row_no: int
    address: str
    params: str | None
    reference: str | None
    segments: int | None
    error: str | None


@dataclass(frozen=True)
class Submission:
    """What a send is, apart from its recipients. `content` and `params` are what the workers render from."""

    send_id: UUID
    tenant_id: int
    api_key_id: int
    mode: Mode
    name: str | None
    content: dict[str, Any]
    params: dict[str, Any]
    send_at: datetime | None
    valid_until: datetime | None


@dataclass
class ChannelRows:
    """The rows of one channel as they are counted while they are stored; `failed` is by piece of a batch's size."""

    channel: Channel
    first_row: int
    count: int = 0
    duplicates: int = 0
    segments: int = 0
    failed: Counter[int] = field(default_factory=Counter)


def store_rows(
    connection: Connection, *, send_id: UUID, channel: Channel, rows: Iterable[AcceptedRow], now: datetime
) -> None:
    """Store a chunk of deliveries; `now` is when those with an error are settled."""
    send = str(send_id)
    owed, failed = DeliveryStatus.OWED.value, DeliveryStatus.FAILED.value
    with connection.cursor().copy(_COPY_DELIVERIES) as copy:
        for row_no, address, params, reference, segments, error in rows:
            if error is None:
                copy.write_row((send, row_no, channel.value, owed, address, params, reference, segments, None, None))
            else:
                copy.write_row((send, row_no, channel.value, failed, address, params, reference, segments, now, error))


def store_send(
    connection: Connection, submission: Submission, *, channels: list[ChannelRows], lane: Lane, batch_size: int
) -> datetime:
    """Store the send and cut its rows into batches; returns when it was created."""
    segments = sum(rows.segments for rows in channels if rows.channel is Channel.SMS)
    row = connection.execute(
        _INSERT_SEND,
        {
            "id": submission.send_id,
            "tenant_id": submission.tenant_id,
            "api_key_id": submission.api_key_id,
            "mode": submission.mode.value,
            "lane": lane.value,
            "name": submission.name,
            "content": Jsonb(submission.content),
            "params": Jsonb(submission.params),
            "accepted": Jsonb({rows.channel.value: rows.count for rows in channels}),
            "duplicates": Jsonb({rows.channel.value: rows.duplicates for rows in channels if rows.duplicates}),
            "segments": segments if any(rows.channel is Channel.SMS for rows in channels) else None,
            "send_at": submission.send_at,
            "valid_until": submission.valid_until,
        },
    ).fetchone()
    assert row is not None  # noqa: S101  # an INSERT without ON CONFLICT returns its row or raises
    next_batch = 1
    for rows in channels:
        connection.execute(
            _INSERT_BATCHES,
            {
                "send_id": submission.send_id,
                "mode": submission.mode.value,
                "requests": int(next_batch == 1),  # a send with two channels is one request
                "first_batch": next_batch,
                "channel": rows.channel.value,
                "first_row": rows.first_row,
                "rows": rows.count,
                "batch_size": batch_size,
                "failed_pieces": list(rows.failed),
                "failed_counts": list(rows.failed.values()),
            },
        )
        next_batch += -(-rows.count // batch_size)
    created_at: datetime = row[0]
    return created_at
