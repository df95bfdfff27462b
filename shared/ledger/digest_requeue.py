"""Dead letters of digests as a bulk operation takes them (`shared.ledger.operations`): the preview, and a chunk."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import LeftOut, OperationKind
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_JUDGE = statement("judge_dead_letters")
_DEEDS = {
    OperationKind.REQUEUE: statement("requeue_dead_letters"),
    OperationKind.DISCARD: statement("discard_dead_letters"),
}


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A part of a preview: so many dead letters of a kind on a channel; `oldest` is when the first was given up."""

    tenant: str
    channel: str
    kind: str
    count: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterPreview:
    """What an operation would take and what it would leave out, exactly, as of a moment."""

    asked: DeadLetterFilter
    as_of: datetime
    taken: list[DeadLetters]
    left_out: dict[LeftOut, int]

    @property
    def total(self) -> int:
        """How many notifications would be taken."""
        return sum(part.count for part in self.taken)


def judge(
    connection: Connection,
    asked: DeadLetterFilter,
    *,
    as_of: datetime,
    kind: OperationKind = OperationKind.REQUEUE,
    operation: UUID | None = None,
) -> DeadLetterPreview:
    """
    Find what a requeue or a discard would take; with an `operation`, freeze it as that operation's items.

    What was discarded is left out, unless it is named by its id to be requeued.
    """
    rows = connection.execute(
        _JUDGE,
        {
            "ids": list(asked.ids) or None,
            "channel": asked.channel,
            "tenant": asked.tenant,
            "kind": asked.kind,
            "deed": kind.value,
            "as_of": as_of,
            "operation": operation,
        },
        prepare=False,  # a plan for any parameters would read every arm
    ).fetchall()
    taken = [
        DeadLetters(tenant, channel, kind, count, oldest)
        for tenant, channel, kind, why, count, oldest in rows
        if why is None
    ]
    left_out: dict[LeftOut, int] = {}
    for row in rows:
        if row[3] is not None:
            left_out[LeftOut(row[3])] = left_out.get(LeftOut(row[3]), 0) + row[4]
    missing = len(set(asked.ids)) - sum(row[4] for row in rows) if asked.ids else 0
    return DeadLetterPreview(asked, as_of, taken, left_out | ({LeftOut.MISSING: missing} if missing > 0 else {}))


def work_on(connection: Connection, kind: OperationKind, operation: UUID, *, limit: int) -> tuple[int, int]:
    """Do a chunk of an operation; how many are told again or discarded, and how many were skipped."""
    row = connection.execute(_DEEDS[kind], {"operation": operation, "limit": limit}).fetchone()
    return (0, 0) if row is None else (row[0], row[1])
