"""One pass at a time and every pass on record: two at once, a Redis that is emptied or away, a pass that is killed."""

import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from uuid import uuid4

import psycopg
import pytest
import redis

from shared.domain.states import Lane, SendStatus
from shared.jobs import Jobs, QueueName
from shared.ledger import recovery
from shared.ledger.db import Ledger
from shared.recovery.passes import RunningPass, only_pass
from shared.recovery.reconciler import Reconciler
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import scalar
from tests.support.processes import ProcessStarter
from tests.support.waiting import wait_until

SENDING = SendStatus.SENDING
NOWHERE = "redis://127.0.0.1:1/0"


def hold_by_the_dead(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE batch SET holder = %s, chain_no = 0, leased_at = now() WHERE settled_at IS NULL", [uuid4()]
        )


def reconciler(worker: InProcess, *, stop: Callable[[], bool] = lambda: False) -> Reconciler:
    runtime = worker.runtime
    return Reconciler(
        runtime.ledger, runtime.link, worker.jobs, runtime.settings, worker="tests", first_look_s={}, stop=stop
    )


def a_pass(worker: InProcess, name: str = "tests"):  # type: ignore[no-untyped-def]  # a context manager
    return only_pass(worker.runtime.ledger, worker.runtime.link, worker.settings, worker=name)


def test_a_second_pass_does_not_begin_while_one_runs(ledger: Ledger, worker: InProcess) -> None:
    with a_pass(worker) as first:
        assert first is not None
        assert reconciler(worker).run_pass() is None
    second = reconciler(worker).run_pass()
    assert second is not None
    assert second.fence > first.fence
    with ledger.autocommit() as connection:
        newest, oldest = recovery.passes(connection, limit=9)
    assert (newest.fence, oldest.fence) == (second.fence, first.fence)
    assert newest.ended_at is not None
    assert newest.error is None


def test_a_redis_emptied_in_mid_pass_lets_a_second_begin_and_the_first_stops(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=10_000, status=SENDING)
    hold_by_the_dead(ledger)
    newer: list[RunningPass | None] = []

    def flush_once() -> bool:
        if not newer:
            with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
                client.flushall()
            newer.append(reconciler(worker).run_pass())
        return False

    first = reconciler(worker, stop=flush_once).run_pass()
    assert first is not None
    [second] = newer
    assert second is not None
    assert second.fence > first.fence
    assert first.counts["batch"].retried + second.counts["batch"].retried == 400
    assert scalar(ledger, "SELECT array_agg(DISTINCT recovery_count) FROM batch") == [1]
    assert counts(ledger, send.id) == {"owed": 10_000}
    with ledger.autocommit() as connection:
        newest, oldest = recovery.passes(connection, limit=9)
    assert oldest.error == "stopped: another pass had begun"
    assert newest.error is None


def test_without_redis_a_lock_of_the_ledger_stands_in(ledger: Ledger, database_url: str) -> None:
    make_send(ledger, count=3, status=SENDING)
    hold_by_the_dead(ledger)
    with InProcess(make_settings(database_url, NOWHERE)) as worker:
        with a_pass(worker) as first:
            assert first is not None
            assert first.flight is None
            assert reconciler(worker).run_pass() is None
        second = reconciler(worker).run_pass()
    assert second is not None
    assert second.fence == first.fence + 1
    assert second.counts["batch"].retried == 1
    assert second.left == "Redis was away: no message could be enqueued"
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NULL") == 1


def test_a_pass_that_is_killed_shows_without_its_end_and_another_follows(
    ledger: Ledger, worker: InProcess, process: ProcessStarter, tmp_path: Path
) -> None:
    make_send(ledger, count=4_000, batch_size=1, status=SENDING)
    hold_by_the_dead(ledger)
    killed = process(["python", "-m", "admin.cli", "reconcile"])
    wait_until(lambda: scalar(ledger, "SELECT count(*) FROM recovery_pass WHERE counts <> '{}'") == 1, timeout=30)
    killed.signal(SIGKILL)
    killed.wait()
    assert scalar(ledger, "SELECT ended_at FROM recovery_pass") is None
    freed = scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NULL")
    assert 0 < freed < 4_000
    another = wait_until(lambda: reconciler(worker).run_pass(), timeout=30, what="the lease of the dead pass to end")
    assert another.counts["batch"].retried == 4_000 - freed
    assert scalar(ledger, "SELECT array_agg(DISTINCT recovery_count) FROM batch") == [1]


def test_tenants_take_turns(ledger: Ledger, worker: InProcess) -> None:
    for tenant, size in (("huge", 300), ("small", 3), ("medium", 30)):
        make_send(ledger, count=size, batch_size=1, status=SENDING, tenant=tenant)
    hold_by_the_dead(ledger)
    with ledger.autocommit() as connection:
        order = [stuck.tenant_id for stuck in recovery.stuck_batches(connection, stale_s=600, page=20)]
    assert len(order) == 333
    small, medium = (scalar(ledger, "SELECT id FROM tenant WHERE name = %s", name) for name in ("small", "medium"))
    last_turn = {tenant: max(i for i, each in enumerate(order) if each == tenant) for tenant in (small, medium)}
    assert last_turn[small] < 3 * 3
    assert last_turn[medium] < 3 * 3 + 2 * 30


def test_a_batch_that_cannot_be_recovered_keeps_nobody_else_from_it(ledger: Ledger, worker: InProcess) -> None:
    broken = make_send(ledger, status=SENDING)
    whole = make_send(ledger, count=30, status=SENDING)
    hold_by_the_dead(ledger)
    with ledger.autocommit() as connection:
        # A row that is in a call, in a batch that counts none: freeing it would break the books.
        connection.execute(
            "UPDATE delivery SET status = 'sending', claim_id = gen_random_uuid() WHERE send_id = %s", [broken.id]
        )
    done = reconciler(worker).run_pass()
    assert done is not None
    assert done.counts["batch"].retried == 2
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE send_id = %s AND holder IS NULL", whole.id) == 2
    with ledger.autocommit() as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE batch SET sending = -1 WHERE send_id = %s", [broken.id])
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET status = 'owed', claim_id = NULL WHERE send_id = %s", [broken.id])


def test_a_pass_over_100_000_stuck_deliveries_ends_before_the_next_and_holds_up_nobody(
    ledger: Ledger, worker: InProcess, redis_url: str
) -> None:
    for tenant in ("one", "two", "three"):
        make_send(ledger, count=33_350, status=SENDING, tenant=tenant)
    hold_by_the_dead(ledger)
    urgent: list[float] = []

    def single_send_meanwhile() -> bool:
        if not urgent:
            begun = time.monotonic()
            send = make_send(ledger, lane=Lane.SINGLE, tenant="four")
            Jobs(worker.broker).ingest(send.id)
            worker.work_off(QueueName.INGEST, QueueName.EMAIL)
            assert counts(ledger, send.id) == {"sent": 1}
            urgent.append(time.monotonic() - begun)
        return False

    begun = time.monotonic()
    done = reconciler(worker, stop=single_send_meanwhile).run_pass()
    took_s = time.monotonic() - begun
    assert done is not None
    assert done.left is None
    assert done.counts["batch"].retried == 4_002
    assert took_s < worker.settings.delivery_reconcile_interval_ms / 1000 / 2
    assert urgent[0] < 3
