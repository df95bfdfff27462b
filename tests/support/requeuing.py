"""Operations planned and worked on through the ledger's own functions, a chunk at a time and without their pace."""

from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import FailureFilter, OperationKind
from shared.ledger import digest_requeue, operations, requeue
from shared.ledger.db import Connection, Ledger
from shared.ledger.operations import Operation
from shared.ledger.requeue import Preview
from tests.support.factories import MadeSend


def preview(
    ledger: Ledger,
    asked: FailureFilter,
    *,
    kind: OperationKind = OperationKind.REQUEUE,
    accepts_duplicates: bool = False,
) -> Preview:
    with ledger.transaction() as connection:
        return requeue.judge(connection, asked, kind=kind, accepts_duplicates=accepts_duplicates)


def plan(
    ledger: Ledger,
    asked: FailureFilter,
    *,
    kind: OperationKind = OperationKind.REQUEUE,
    operator: str = "kim",
    as_of: datetime | None = None,
    accepts_duplicates: bool = False,
    canary: bool = False,
    undo_s: float = 0,
) -> Operation:
    """An operation on what can be requeued now; there must be something."""
    found, _ = try_plan(
        ledger,
        asked,
        kind=kind,
        operator=operator,
        as_of=as_of,
        accepts_duplicates=accepts_duplicates,
        canary=canary,
        undo_s=undo_s,
    )
    assert found is not None
    return found


def try_plan(
    ledger: Ledger,
    asked: FailureFilter,
    *,
    kind: OperationKind = OperationKind.REQUEUE,
    as_of: datetime | None = None,
    **how: Any,
) -> tuple[Operation | None, Preview | None]:
    as_of = as_of or preview(ledger, asked, kind=kind).as_of
    with ledger.transaction() as connection:
        return operations.plan(
            connection, kind, asked, as_of=as_of, reason="a test", **{"operator": "kim", "undo_s": 0, **how}
        )


def chunk(connection: Connection, *, size: int = 200) -> int | None:
    """One chunk of the next operation in the caller's transaction: how many items; None when none is due."""
    operation = operations.take(connection)
    if operation is None:
        return None
    if operation.takes_notifications:
        done, skipped = digest_requeue.work_on(connection, operation.kind, operation.id, limit=size)
        operations.note_progress(connection, operation, done=done, skipped=skipped, pause_s=-0.1)
        operations.end(connection, operation, done=operation.done + done, skipped=operation.skipped + skipped)
        return done + skipped
    items = operations.next_items(connection, operation, limit=size)
    done = skipped = 0
    if items:
        done, skipped = requeue.work_on(
            connection,
            operation.kind,
            items,
            operation=operation.id,
            takes_unsure=operation.accepts_duplicates,
            takes_reported=operation.takes_reported,
        )
        operations.note_progress(connection, operation, done=done, skipped=skipped, pause_s=-0.1)
    operations.end(connection, operation, done=operation.done + done, skipped=operation.skipped + skipped)
    return len(items)


def finish(ledger: Ledger) -> None:
    """Work on every due operation until it is over."""
    while True:
        with ledger.transaction() as connection:
            if chunk(connection) is None:
                return


def operation(ledger: Ledger, id_: UUID) -> Operation:
    with ledger.transaction() as connection:
        found = operations.find(connection, id_)
    assert found is not None
    return found


def of(send: MadeSend, **more: Any) -> FailureFilter:
    """Of one send."""
    return FailureFilter(send_id=send.id, **more)


def requeue_dead_letters(connection: Connection, asked: DeadLetterFilter) -> int:
    """Have dead letters of digests told again, in this transaction; how many are."""
    planned, _ = operations.plan(
        connection,
        OperationKind.REQUEUE,
        asked,
        operator="kim",
        reason=None,
        as_of=requeue.ledger_now(connection),
        undo_s=0,
    )
    return (
        0 if planned is None else digest_requeue.work_on(connection, OperationKind.REQUEUE, planned.id, limit=1_000)[0]
    )
