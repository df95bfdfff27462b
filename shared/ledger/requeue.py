"""
What people do to failures: which qualify and which do not, and a chunk of them requeued, discarded or restored.

The candidates are the rows of `failure`; a requeue makes a delivery owed again under its next epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger import failures
from shared.ledger.clock import ledger_now
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_JUDGE = statement("judge_failures")
_LOCK_SENDS = statement("lock_sends_to_requeue")
_LOCK_BATCHES = statement("lock_batches_to_requeue")
_LOCK_DELIVERIES = statement("lock_deliveries_to_requeue")
_LOCK_FAILURES = statement("lock_failures_to_mark")
_REQUEUE = statement("requeue_deliveries")
_DISCARD = statement("discard_failures")
_RESTORE = statement("restore_failures")


@dataclass(frozen=True, slots=True)
class Share:
    """
    A part of a preview: so many deliveries of a tenant, channel and status; `oldest` is when the first failed.

    So many of them failed within the hour before the preview, and within the day before it.
    """

    tenant: str
    channel: Channel
    status: DeliveryStatus
    count: int
    oldest: datetime | None = None
    in_hour: int = 0
    in_day: int = 0


@dataclass(frozen=True, slots=True)
class Before:
    """A requeue that took some of a preview's deliveries before; of its `done` these are `again` failures now."""

    operation: UUID
    operator: str
    at: datetime
    done: int
    again: int


@dataclass(frozen=True, slots=True)
class Preview:
    """
    What an operation would take and what it would leave out, exactly, as of a moment; `sends` it takes from.

    `again` of them were requeued before and failed again; `before` is the newest requeue that left one of those.
    """

    kind: OperationKind
    asked: FailureFilter
    as_of: datetime
    taken: list[Share]
    left_out: dict[LeftOut, int]
    sends: int
    again: int = 0
    before: Before | None = None

    @property
    def total(self) -> int:
        """How many deliveries would be taken."""
        return sum(share.count for share in self.taken)


@dataclass(frozen=True, slots=True)
class Item:
    """A delivery of an operation's frozen set; `epoch` is the one it was frozen in."""

    send_id: UUID
    row_no: int
    epoch: int


def judge(
    connection: Connection,
    asked: FailureFilter,
    *,
    kind: OperationKind = OperationKind.REQUEUE,
    as_of: datetime | None = None,
    accepts_duplicates: bool,
    operation: UUID | None = None,
) -> Preview:
    """
    Find what an operation of this kind would take; with an `operation`, freeze it as that operation's items.

    `as_of` is the moment of the preview, None for now. Of what may have been sent nothing is taken without
    `accepts_duplicates`; and what is no longer unsure, since a late receipt says that it was taken, only by its own id.
    """
    moment, asked = as_of or ledger_now(connection), failures.named(connection, asked)
    takes_unsure = DeliveryStatus.UNSURE in asked.statuses and (accepts_duplicates or kind is not OperationKind.REQUEUE)
    rows = connection.execute(
        _JUDGE,
        {
            "kind": kind.value,
            "by_id": bool(asked.ids),
            "send_ids": [send_id for send_id, _ in asked.ids],
            "row_nos": [row_no for _, row_no in asked.ids],
            "send_id": asked.send_id,
            "signature": asked.signature,
            "channel": asked.channel.value if asked.channel else None,
            "tenant": asked.tenant,
            "provider": asked.provider,
            "recipient": bytes.fromhex(asked.recipient) if asked.recipient else None,
            "left_by": asked.operation,
            "since": asked.since,
            "looked_at": sorted(asked.statuses | {DeliveryStatus.UNSURE}),
            "takes_unsure": takes_unsure,
            "takes_reported": bool(asked.ids) and accepts_duplicates,
            "first": asked.first,
            "as_of": moment,
            "operation": operation,
        },
        prepare=False,  # a plan for any parameters would read every arm
    ).fetchall()
    taken = [
        Share(tenant, Channel(channel), DeliveryStatus(status), *numbers[:4])
        for tenant, channel, status, why, *numbers in rows
        if why is None
    ]
    left_out: dict[LeftOut, int] = {}
    for _, _, _, why, count, *_ in rows:
        if why is not None:
            left_out[LeftOut(why)] = left_out.get(LeftOut(why), 0) + count
    if asked.ids and not (asked.tenant or asked.channel or asked.since):
        missing = len(set(asked.ids)) - sum(row[4] for row in rows)
        if missing:
            left_out[LeftOut.MISSING] = left_out.get(LeftOut.MISSING, 0) + missing
    if not rows:
        return Preview(kind, asked, moment, taken, left_out, sends=0)
    sends, again, before = rows[0][8:]
    return Preview(kind, asked, moment, taken, left_out, sends, again, None if before is None else _before(before))


def _before(found: Mapping[str, Any]) -> Before:
    at = datetime.fromisoformat(found["at"])
    return Before(UUID(found["id"]), found["operator"], at, found["done"], found["again"])


def work_on(
    connection: Connection,
    kind: OperationKind,
    items: Sequence[Item],
    *,
    operation: UUID,
    takes_unsure: bool,
    takes_reported: bool,
) -> tuple[int, int]:
    """Do a chunk of an operation of this kind; how many are done and how many were skipped. Locks in order."""
    batches = _lock(connection, kind, items)
    if kind is OperationKind.REQUEUE:
        takes = {"takes_unsure": takes_unsure, "takes_reported": takes_reported}
        return _requeue(connection, items, batches, operation=operation, takes=takes)
    row = connection.execute(
        _DISCARD if kind is OperationKind.DISCARD else _RESTORE,
        {
            "send_ids": [item.send_id for item in items],
            "row_nos": [item.row_no for item in items],
            "epochs": [item.epoch for item in items],
            "operation": operation,
        },
    ).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


def _lock(connection: Connection, kind: OperationKind, items: Sequence[Item]) -> list[tuple[Any, ...]]:
    """Sends, then batches, then what is changed, as everybody locks them; the batches."""
    parameters = {"send_ids": [item.send_id for item in items], "row_nos": [item.row_no for item in items]}
    connection.execute(_LOCK_SENDS, parameters)
    batches = connection.execute(_LOCK_BATCHES, parameters).fetchall()
    connection.execute(_LOCK_DELIVERIES if kind is OperationKind.REQUEUE else _LOCK_FAILURES, parameters)
    return batches


def _requeue(
    connection: Connection,
    items: Sequence[Item],
    batches: Sequence[tuple[Any, ...]],
    *,
    operation: UUID,
    takes: Mapping[str, bool],
) -> tuple[int, int]:
    row = connection.execute(
        _REQUEUE,
        {
            "send_ids": [item.send_id for item in items],
            "row_nos": [item.row_no for item in items],
            "epochs": [item.epoch for item in items],
            "batch_sends": [batch[0] for batch in batches],
            "batches": [batch[1] for batch in batches],
            "first_rows": [batch[2] for batch in batches],
            "last_rows": [batch[3] for batch in batches],
            "operation": operation,
            **takes,
        },
    ).fetchone()
    return (0, 0) if row is None else (row[0], row[1])
