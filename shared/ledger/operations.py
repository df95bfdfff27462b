"""
Operations: what a person does to many deliveries or notifications at once, in the background, in chunks (ADR-0009).

Planning freezes the set and opens a time to undo it; a worker then takes an open operation for one chunk at a
time, in one transaction, so that a crash loses nothing and a stop leaves the rest as it was.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.digest_requeue import TARGET, DeadLetterFilter
from shared.domain.masking import mask_text
from shared.domain.requeue import CANARY_STEPS, CanaryResult, FailureFilter, OperationKind, operation_id
from shared.ledger import audit, digest_requeue, failures, requeue
from shared.ledger.db import Connection
from shared.ledger.digest_requeue import DeadLetterPreview
from shared.ledger.queries import statement
from shared.ledger.requeue import Item, Preview

_INSERT = statement("insert_operation")
_SET_TOTAL = statement("set_operation_total")
_DUE = statement("find_operations_due")
_NEXT_IN = statement("next_operation_in")
_TAKE = statement("take_operation")
_ITEMS = statement("next_operation_items")
_ITEMS_TO_TRY = statement("next_operation_items_to_try")
_NOTE = statement("note_operation_progress")
_PUT_OFF = statement("put_off_operation")
_END = statement("end_operation")
_STOP = statement("stop_operation")
_UNDO = statement("undo_operation")
_CANARY = statement("judge_canary")
_SELECT = statement("select_operation")
_SELECT_NEWEST = statement("select_operations")

#: seconds in which an operation can be taken back before anything is done.
UNDO_S = 10.0
#: seconds after its time at which nobody is at an operation: a worker at it takes the next chunk at once.
_NOBODY_S = 1.0


@dataclass(frozen=True, slots=True)
class Operation:
    """
    A bulk operation as people see it.

    `run_at` is when it begins, later when its next chunk may go. `why` says what ended it before its end. `emptied_at`
    is when retention had removed its items; what came of them is kept (`operation_results`). All is as of `read_at`.
    """

    id: UUID
    kind: OperationKind
    status: str
    operator: str
    reason: str | None
    filter: dict[str, Any]
    accepts_duplicates: bool
    canary: bool
    as_of: datetime
    run_at: datetime
    total: int
    done: int
    skipped: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    why: str | None
    emptied_at: datetime | None
    read_at: datetime = field(compare=False)

    @property
    def left(self) -> int:
        """Items nobody has worked on."""
        return self.total - self.done - self.skipped

    @property
    def takes_notifications(self) -> bool:
        """Whether its items are notifications of digests, not deliveries."""
        return self.filter.get("target") == TARGET

    @property
    def noun(self) -> str:
        """What it takes, in words."""
        one, many = ("notification", "notifications") if self.takes_notifications else ("delivery", "deliveries")
        return one if self.total == 1 else many


@dataclass(frozen=True, slots=True)
class Taken:
    """An operation taken for one chunk, locked until the transaction ends."""

    id: UUID
    kind: OperationKind
    operator: str
    accepts_duplicates: bool
    canary: bool
    done: int
    skipped: int
    total: int
    words: str
    since_stage_s: float
    target: str
    by_id: bool

    @property
    def takes_reported(self) -> bool:
        """Whether it takes what a provider reported as taken: only what a person named, accepting a duplicate."""
        return self.by_id and self.accepts_duplicates

    @property
    def is_trying(self) -> bool:
        """Whether the few that go first are not all gone and judged."""
        return self.canary and self.done <= CANARY_STEPS[-1]

    @property
    def takes_notifications(self) -> bool:
        """Whether its items are notifications of digests, not deliveries."""
        return self.target == TARGET


def plan(
    connection: Connection,
    kind: OperationKind,
    asked: FailureFilter | DeadLetterFilter,
    *,
    operator: str,
    reason: str | None,
    as_of: datetime,
    accepts_duplicates: bool = False,
    canary: bool = True,
    undo_s: float = UNDO_S,
) -> tuple[Operation | None, Preview | DeadLetterPreview | None]:
    """
    Freeze what a preview of `as_of` showed as an operation that begins in `undo_s` seconds, inside a transaction.

    Asked again by the same person with the same `as_of`, it is the same operation and nothing is frozen twice.
    With `canary` a few of a larger set of deliveries are tried first, and it stops where they fail again for the same
    cause. Addresses in the reason are masked.

    Returns: the operation, None where nothing qualifies; and what was frozen, None where that was done before.
    """
    id_ = operation_id(kind, asked, operator=operator, as_of=as_of, accepts_duplicates=accepts_duplicates)
    if isinstance(asked, FailureFilter):
        asked = failures.named(connection, asked)
    with connection.transaction() as attempt:
        parameters = {
            "id": id_,
            "kind": kind.value,
            "operator": operator,
            "reason": mask_text(reason) if reason else reason,
            "filter": Jsonb(asked.as_json(kind)),
            "accepts_duplicates": accepts_duplicates,
            "canary": canary,
            "as_of": as_of,
            "undo_s": undo_s,
        }
        if connection.execute(_INSERT, parameters).fetchone() is None:
            return find(connection, id_), None
        frozen: Preview | DeadLetterPreview
        if isinstance(asked, DeadLetterFilter):
            frozen, canary = digest_requeue.judge(connection, asked, kind=kind, as_of=as_of, operation=id_), False
        else:
            frozen = requeue.judge(
                connection, asked, kind=kind, as_of=as_of, accepts_duplicates=accepts_duplicates, operation=id_
            )
        if frozen.total == 0:
            attempt.force_rollback = True
            return None, frozen
        tries_few = canary and kind is OperationKind.REQUEUE and frozen.total > CANARY_STEPS[-1]
        connection.execute(_SET_TOTAL, {"id": id_, "total": frozen.total, "canary": tries_few})
        audit.record(
            connection,
            operator=operator,
            action=kind.value,
            target=_target(id_),
            reason=reason,
            count=frozen.total,
            result="accepted possible duplicates" if accepts_duplicates else "planned",
            detail={"filter": asked.as_json(kind), "left_out": {why.value: n for why, n in frozen.left_out.items()}},
        )
    return find(connection, id_), frozen


def is_any_waiting(connection: Connection) -> bool:
    """Whether an operation should be moving and no worker is at it."""
    return connection.execute(_DUE, {"late_s": _NOBODY_S}).fetchone() is not None


def next_in_s(connection: Connection) -> float | None:
    """Seconds until the next open operation may go on, None when none is open."""
    row = connection.execute(_NEXT_IN).fetchone()
    return None if row is None else row[0]


def take(connection: Connection) -> Taken | None:
    """Take the next due operation for one chunk, inside a transaction; None when there is none."""
    row = connection.execute(_TAKE).fetchone()
    return None if row is None else Taken(row[0], OperationKind(row[1]), *row[2:])


def next_items(connection: Connection, operation: Taken, *, limit: int) -> list[Item]:
    """The next items of a taken operation, locked; a few that are tried first are not those that failed again."""
    items = _ITEMS_TO_TRY if operation.is_trying else _ITEMS
    return [Item(*row) for row in connection.execute(items, {"id": operation.id, "limit": limit})]


def canary_result(connection: Connection, operation: Taken) -> CanaryResult:
    """What became of the ones that went first."""
    row = connection.execute(_CANARY, {"id": operation.id}).fetchone()
    gone, tried, same, others = row or (0, 0, 0, 0)
    return CanaryResult(gone, tried, same, operation.since_stage_s, others)


def note_progress(connection: Connection, operation: Taken, *, done: int, skipped: int, pause_s: float) -> None:
    """Count a chunk; the operation's next may go in `pause_s` seconds, whichever worker takes it."""
    parameters = {"id": operation.id, "done": done, "skipped": skipped, "pause_s": pause_s}
    connection.execute(_NOTE, parameters)


def put_off(connection: Connection, operation: Taken, *, pause_s: float) -> None:
    """Look at the operation again in `pause_s` seconds."""
    connection.execute(_PUT_OFF, {"id": operation.id, "pause_s": pause_s})


def end(connection: Connection, operation: Taken, *, done: int, skipped: int) -> bool:
    """End an operation none of whose items is left; False when some are."""
    if connection.execute(_END, {"id": operation.id}).fetchone() is None:
        return False
    result = f"done: {done} {operation.kind.done}, {skipped} skipped"
    audit.record(
        connection,
        operator=operation.operator,
        action=f"{operation.kind.value} done",
        target=_target(operation.id),
        count=done,
        result=result,
    )
    return True


def stop(connection: Connection, id_: UUID, *, operator: str, why: str) -> bool:
    """Stop an open operation: the rest stays as it was. False when it is over. Addresses in `why` are masked."""
    why = mask_text(why)
    if connection.execute(_STOP, {"id": id_, "why": why}).fetchone() is None:
        return False
    stopped = find(connection, id_)
    audit.record(
        connection,
        operator=operator,
        action="stop",
        target=_target(id_),
        reason=why,
        count=stopped.left if stopped else None,
        result="stopped",
    )
    return True


def undo(connection: Connection, id_: UUID, *, operator: str) -> bool:
    """Take an operation back of which nothing is done yet; False when it has begun."""
    if connection.execute(_UNDO, {"id": id_, "why": f"undone by {operator}"}).fetchone() is None:
        return False
    audit.record(connection, operator=operator, action="undo", target=_target(id_), result="undone")
    return True


def find(connection: Connection, id_: UUID) -> Operation | None:
    """One operation, None when there is none of this id."""
    row = connection.execute(_SELECT, {"id": id_}).fetchone()
    return None if row is None else _operation(row)


def newest(connection: Connection, *, limit: int, before: UUID | None = None) -> list[Operation]:
    """Operations, newest first; `before` is the last one of the page before."""
    parameters = {"limit": limit, "before": before}
    return [_operation(row) for row in connection.execute(_SELECT_NEWEST, parameters)]


def _operation(row: tuple[Any, ...]) -> Operation:
    return Operation(row[0], OperationKind(row[1]), *row[2:])


def _target(id_: UUID) -> str:
    return f"operation {id_}"
