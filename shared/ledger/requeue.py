"""Requeue by a person: what qualifies and what does not, and a chunk of it made owed again under the next epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.domain.requeue import LeftOut, RequeueFilter
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_NOW = statement("ledger_clock")
_JUDGE = statement("judge_for_requeue")
_LOCK_SENDS = statement("lock_sends_to_requeue")
_LOCK_BATCHES = statement("lock_batches_to_requeue")
_REQUEUE = statement("requeue_deliveries")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a preview: so many deliveries of a tenant, channel and status."""

    tenant: str
    channel: Channel
    status: DeliveryStatus
    count: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a requeue would take and what it would leave out, exactly, as of a moment."""

    asked: RequeueFilter
    as_of: datetime
    taken: list[Share]
    left_out: dict[LeftOut, int]

    @property
    def total(self) -> int:
        """How many deliveries would be requeued."""
        return sum(share.count for share in self.taken)


@dataclass(frozen=True, slots=True)
class Item:
    """A delivery of an operation's frozen set; `epoch` is the one it was frozen in."""

    send_id: UUID
    row_no: int
    epoch: int


def judge(
    connection: Connection,
    asked: RequeueFilter,
    *,
    as_of: datetime | None = None,
    accepts_duplicates: bool,
    operation: UUID | None = None,
) -> Preview:
    """
    Find what can be requeued; with an `operation`, freeze it as that operation's items.

    `as_of` is the moment of the preview, None for now. A million deliveries take seconds: not for a request
    without a bound on its own time.
    """
    moment = as_of or _now(connection)
    by = "id" if asked.ids else "signature" if asked.signature else "batch"
    takes_unsure = accepts_duplicates and DeliveryStatus.UNSURE in asked.statuses
    found = connection.execute(
        _JUDGE,
        {
            "by": by,
            "send_id": asked.send_id,
            "send_ids": [send_id for send_id, _ in asked.ids],
            "row_nos": [row_no for _, row_no in asked.ids],
            "signature": asked.signature,
            "channel": asked.channel.value if asked.channel else None,
            "tenant": asked.tenant,
            "since": asked.since,
            "looked_at": sorted(asked.statuses | {DeliveryStatus.UNSURE}),
            "takes_unsure": takes_unsure,
            "as_of": moment,
            "operation": operation,
        },
        prepare=False,  # a plan for any parameters would read every arm
    ).fetchall()
    taken = [
        Share(tenant, Channel(channel), DeliveryStatus(status), count)
        for tenant, channel, status, why, count in found
        if why is None
    ]
    left_out: dict[LeftOut, int] = {}
    for _, _, _, why, count in found:
        if why is not None:
            left_out[LeftOut(why)] = left_out.get(LeftOut(why), 0) + count
    if asked.ids and not (asked.tenant or asked.channel or asked.since):
        missing = len(set(asked.ids)) - sum(count for *_, count in found)
        left_out |= {LeftOut.MISSING: missing} if missing else {}
    return Preview(asked, moment, taken, left_out)


def requeue_deliveries(
    connection: Connection, items: Sequence[Item], *, operation: UUID, takes_unsure: bool
) -> tuple[int, int]:
    """Make a chunk of an operation owed again; how many were requeued and how many skipped. Locks in order."""
    parameters: dict[str, object] = {
        "send_ids": [item.send_id for item in items],
        "row_nos": [item.row_no for item in items],
    }
    connection.execute(_LOCK_SENDS, parameters)
    batches = connection.execute(_LOCK_BATCHES, parameters).fetchall()
    row = connection.execute(
        _REQUEUE,
        {
            **parameters,
            "epochs": [item.epoch for item in items],
            "batch_sends": [batch[0] for batch in batches],
            "batches": [batch[1] for batch in batches],
            "first_rows": [batch[2] for batch in batches],
            "last_rows": [batch[3] for batch in batches],
            "operation": operation,
            "takes_unsure": takes_unsure,
        },
    ).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def _now(connection: Connection) -> datetime:
    """The ledger's clock: what it is compared with was written by it."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None  # noqa: S101  # a SELECT without FROM has one row
    moment: datetime = row[0]
    return moment
