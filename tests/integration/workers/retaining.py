"""A day's run of retention from its beginning to its end, and rows old enough for it."""

from uuid import UUID

from shared.ledger import retention
from shared.ledger.db import Ledger
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend
from workers.actors.retention import run_retention


def clean(worker: InProcess) -> retention.RetentionRun:
    """A day's run from its beginning to its end."""
    run_retention(worker.runtime, every_s=0.0)
    with worker.runtime.ledger.autocommit() as connection:
        run = retention.newest(connection)
    assert run is not None
    assert run.ended_at is not None
    return run


def count(ledger: Ledger, table: str, send_id: UUID | None = None) -> int:
    where = "" if send_id is None else f" WHERE {'id' if table == 'send' else 'send_id'} = '{send_id}'"
    with ledger.autocommit() as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}{where}").fetchone()  # type: ignore[arg-type]
    assert row is not None
    return int(row[0])


def make_old(ledger: Ledger, send: MadeSend, interval: str = "31 days") -> None:
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE send SET completed_at = completed_at - %(by)s::interval,"
            " cancelled_at = cancelled_at - %(by)s::interval WHERE id = %(id)s",
            {"id": send.id, "by": interval},
        )
