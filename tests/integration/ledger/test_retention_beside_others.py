"""Retention beside those who hand the same things in again or requeue them: nobody locks anybody out."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import OperationKind
from shared.ledger import clock, digest_requeue, operations, retention
from shared.ledger.db import Ledger
from tests.support.digests import event, finding, make_channel, post, put
from tests.support.ledger_rows import scalar
from tests.support.waiting import wait_until

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
#: In the order of their keys `m` is in the middle; in that of their places and ages the last comes first.
_KEYS = [*(f"z{n}" for n in range(20, 0, -1)), "m", *(f"a{n}" for n in range(20, 0, -1))]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def cross(ledger: Ledger, pool: ThreadPoolExecutor, *, lock: str, other: Callable[[], object], kind: str) -> int:
    """
    Have retention come upon rows of which somebody else has half and waits for the middle one; how many it removed.

    It takes the other half, and would wait for the first; he is let on then, and would wait for the other half.
    """
    with ledger.transaction() as connection:
        connection.execute(lock)  # type: ignore[call-overload]
        changed = pool.submit(other)
        wait_until(lambda: scalar(ledger, _WAITING) == 1, what="the other one to wait")
        removed = pool.submit(remove, ledger, kind)
        wait_until(lambda: removed.done() or scalar(ledger, _WAITING) == 2, what="retention to end or to wait")
    changed.result()
    return removed.result()


def remove(ledger: Ledger, kind: str) -> int:
    with ledger.transaction() as connection:
        if kind == "notifications":
            ((channel, days),) = retention.channels(connection, days=30)
            after, after_id = retention.EARLIEST, 0
            page = retention.remove_notifications(
                connection, channel, days=days, limit=100, after=after, after_id=after_id
            )
            return page.removed
        return retention.remove_by_age(connection, kind, days=30, limit=100)


def test_findings_that_are_put_again_in_bulk(ledger: Ledger, pool: ThreadPoolExecutor) -> None:
    for key in _KEYS:
        put(ledger, finding(key, active=False))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE finding SET inactive_at = now() - interval '40 days' WHERE key <> 'm'")
    removed = cross(
        ledger, pool, kind="findings", lock="SELECT 1 FROM finding WHERE key = 'm' FOR UPDATE",
        other=lambda: put(ledger, *_KEYS),
    )  # fmt: skip
    assert removed == 20
    assert scalar(ledger, "SELECT count(*) FROM finding WHERE active") == 41


def test_events_that_are_handed_in_again(ledger: Ledger, pool: ThreadPoolExecutor) -> None:
    for key in _KEYS:
        post(ledger, key)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE event SET received_at = now() - interval '40 days' WHERE dedup_key <> 'm'")
    removed = cross(
        ledger, pool, kind="events", lock="SELECT 1 FROM event WHERE dedup_key = 'm' FOR UPDATE",
        other=lambda: post(ledger, *map(event, _KEYS)),
    )  # fmt: skip
    assert removed == 20
    assert scalar(ledger, "SELECT count(*) FROM event") == 41


def test_dead_letters_that_a_person_requeues(ledger: Ledger, pool: ThreadPoolExecutor) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status, final_at)"
            " SELECT %s, n, 'x', 's', 'low', now(), 'dead_lettered',"
            " CASE WHEN n = 21 THEN now() ELSE now() - interval '40 days' - n * interval '1 second' END"
            " FROM generate_series(1, 41) n",
            [channel],
        )
        planned, _ = operations.plan(
            connection, OperationKind.REQUEUE, DeadLetterFilter(), operator="kim", reason=None,
            as_of=clock.ledger_now(connection), undo_s=0,
        )  # fmt: skip
    assert planned is not None

    def work() -> None:
        with ledger.transaction() as connection:
            digest_requeue.work_on(connection, OperationKind.REQUEUE, planned.id, limit=100)

    lock = "SELECT 1 FROM notification WHERE dedup_key = '21' FOR UPDATE"
    assert cross(ledger, pool, kind="notifications", lock=lock, other=work) == 20
    assert scalar(ledger, "SELECT count(*) FROM notification WHERE status = 'pending'") == 21
    assert scalar(ledger, "SELECT count(*) FROM operation_notification WHERE result = 'skipped'") == 20
