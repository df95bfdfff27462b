"""The schema is migrated (`pre`) while workers of the release before it go on accepting, sending and recording."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from alembic import command
from psycopg.types.json import Jsonb

from shared.domain.ids import new_send_id
from shared.ledger.db import Connection, Ledger
from shared.ledger.migrate import alembic_config, upgrade
from tests.support.books import assert_books_balance
from tests.support.factories import make_tenant
from tests.support.ledger_rows import scalar
from tests.support.waiting import wait_until

#: The schema that the release before this one was made for.
PREVIOUS = "0001_pre_ledger"
#: The previous release knows no counts of minutes: what it did before the new code came is in none.
UNCOUNTED = frozenset({"the counts of the minutes sum to the books"})
ROWS, BATCH, WORKERS = 60, 25, 4
_PARTS = re.split(
    r"^-- name: (\w+)$",
    Path(__file__).with_name("previous_release.sql").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
OLD = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))
ENDS = ("sent", "sent", "sent", "failed", "unsure", "retrying", "dead_lettered")


@dataclass
class OldFleet:
    """Threads that each accept a send, work it off and complete it, with the statements of the previous release."""

    ledger: Ledger
    tenant: int
    key: int
    done: list[UUID] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        worker = uuid4()
        try:
            with self.ledger.autocommit() as connection:
                connection.execute(
                    "INSERT INTO worker (id, name, lease_until) VALUES (%s, 'old', now() + interval '1 hour')", [worker]
                )
                while not self.stop.is_set():
                    send_id = self._accept(connection)
                    self._old(connection, "start_send", send_id=send_id)
                    while self._work(connection, send_id, worker):
                        pass
                    assert self._old(connection, "complete_send", send_id=send_id), "a send was not finished"
                    self.done.append(send_id)
        except BaseException as error:  # noqa: BLE001  # told by the test
            self.errors.append(error)

    def _old(self, connection: Connection, statement: str, /, **parameters: Any) -> list[Any]:
        cursor = connection.execute(OLD[statement], parameters)
        return cursor.fetchall() if cursor.description else []

    def _accept(self, connection: Connection) -> UUID:
        send_id = new_send_id()
        columns = "send_id, row_no, channel, status, address, params, reference, segments, settled_at, last_error"
        with connection.transaction():
            with connection.cursor().copy(f"COPY delivery ({columns}) FROM STDIN") as copy:
                for row in range(1, ROWS + 1):
                    copy.write_row((send_id, row, "email", "owed", f"p{row}@example.com", None, None, None, None, None))
            self._old(
                connection,
                "insert_send",
                id=send_id,
                tenant_id=self.tenant,
                api_key_id=self.key,
                mode="live",
                lane="bulk",
                name=None,
                content=Jsonb({"email": {}}),
                params=Jsonb({}),
                accepted=Jsonb({"email": ROWS}),
                duplicates=Jsonb({}),
                segments=None,
                send_at=None,
                valid_until=None,
            )
            self._old(
                connection,
                "insert_batches",
                send_id=send_id,
                first_batch=0,
                rows=ROWS,
                batch_size=BATCH,
                first_row=1,
                channel="email",
                failed_pieces=[],
                failed_counts=[],
            )
        return send_id

    def _work(self, connection: Connection, send_id: UUID, worker: UUID) -> bool:
        """Lease, claim, record and release once; False when nothing is due."""
        chain = {"send_id": send_id, "channel": "email", "chain_no": 0, "worker": worker}
        held = [row[0] for row in self._old(connection, "lease_batches", **chain, limit=2)]
        claim = uuid4()
        rows = self._old(connection, "claim_window", **chain, batches=held, claim=claim, limit=40)
        for start in range(0, len(rows), 20):
            self._record(connection, send_id, claim, rows[start : start + 20])
        self._old(connection, "release_batches", **chain, batches=None)
        return bool(held)

    def _record(self, connection: Connection, send_id: UUID, claim: UUID, rows: list[Any]) -> None:
        now = datetime.now(UTC)
        # A second try is always taken: the send comes to its end.
        became = [ENDS[row[0] % len(ENDS)] if row[4] == 0 else "sent" for row in rows]
        count = len(rows)
        recorded = self._old(
            connection,
            "record_outcomes",
            send_id=send_id,
            claim=claim,
            channel="email",
            provider="ches",
            started=now,
            rows=[row[0] for row in rows],
            batches=[row[1] for row in rows],
            became=became,
            uses=[True] * count,
            next=[now if state == "retrying" else None for state in became],
            refs=[None] * count,
            errors=[None] * count,
            outcomes=["permanent" if state != "sent" else "accepted" for state in became],
            codes=[None] * count,
            details=[None] * count,
            signatures=[None] * count,
            ended=[now] * count,
            evidence=[None] * count,
        )
        assert len(recorded) == count, "an outcome was not recorded"


@pytest.fixture
def old_schema(empty_database_url: str) -> Iterator[Ledger]:
    command.upgrade(alembic_config(empty_database_url), PREVIOUS)
    pool = Ledger(empty_database_url, size=WORKERS + 2, name="old release")
    pool.open()
    yield pool
    pool.close()


def test_workers_of_the_previous_release_work_on_while_the_schema_changes_under_them(
    old_schema: Ledger, empty_database_url: str
) -> None:
    with old_schema.transaction() as connection:
        tenant, key = make_tenant(connection)
    fleet = OldFleet(old_schema, tenant, key)
    threads = [threading.Thread(target=fleet.run) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()

    def finished(more: int) -> None:
        before = len(fleet.done)
        wait_until(lambda: fleet.errors or len(fleet.done) >= before + more, timeout=60, what=f"{more} more sends")

    try:
        finished(12)
        upgrade(empty_database_url)
        finished(24)
    finally:
        fleet.stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert fleet.errors == []
    assert scalar(old_schema, "SELECT count(*) FROM send WHERE status = 'completed'") == len(fleet.done) >= 36
    assert scalar(old_schema, "SELECT count(*) FROM delivery WHERE settled_at IS NULL") == 0
    assert_books_balance(old_schema, except_for=UNCOUNTED)


def test_what_the_previous_release_recovers_and_sweeps_after_the_migration_balances(
    old_schema: Ledger, empty_database_url: str
) -> None:
    with old_schema.transaction() as connection:
        tenant, key = make_tenant(connection)
    fleet = OldFleet(old_schema, tenant, key)
    dead = uuid4()
    upgrade(empty_database_url)
    with old_schema.autocommit() as connection:
        for status in ("cancelled", "expired"):
            send_id = fleet._accept(connection)
            chain = {"send_id": send_id, "channel": "email", "chain_no": 0, "worker": dead}
            fleet._old(connection, "start_send", send_id=send_id)
            assert len(fleet._old(connection, "lease_batches", **chain, limit=1)) == 1
            assert len(fleet._old(connection, "claim_window", **chain, batches=[0], claim=uuid4(), limit=10)) == 10
            assert fleet._old(connection, "free_abandoned_batch", send_id=send_id, batch_no=0, worker=dead) == [(10,)]
            swept = fleet._old(connection, "sweep_batches", send_id=send_id, status=status, limit=10)
            assert sum(row[0] for row in swept) == 50
            assert fleet._old(connection, "complete_send", send_id=send_id)
    assert_books_balance(old_schema, except_for=UNCOUNTED)
