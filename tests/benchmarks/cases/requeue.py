"""100,000 failed deliveries among 1,000,000: seconds to preview them, to freeze them, and to make them owed again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shared.domain.requeue import FailureFilter, OperationKind
from shared.domain.states import SendStatus
from shared.ledger import operations, requeue
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.ledger.requeue import Preview
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import median_of
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import recount
from tests.support.requeuing import finish
from tests.support.servers import temporary_database

#: One of so many deliveries is dead-lettered: they lie scattered over all batches, the worst case.
_EVERY = 10
_SIGNATURE = "0123456789ab"

T = TypeVar("T")


def requeue_100k(bench: Bench) -> Line:
    """Found in three ways: those of a send, everybody's, those of one cause. Then the chunks, without their pace."""
    count = bench.size(1_000_000, 50_000)

    def run() -> Line:
        with _ledger(bench.servers.postgres_url) as ledger:
            return _run(ledger, _failed_send(ledger, count), count // _EVERY)

    runs = bench.repeat("requeue_100k", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    slowest = max(medians[name] for name in ("preview_send_s", "preview_all_s", "preview_cause_s", "plan_s"))
    return {
        "deliveries": count,
        "failed": count // _EVERY,
        **medians,
        "goals": {"seconds to preview or to freeze": goal(slowest, at_most=2)},
        "runs": runs,
    }


def _run(ledger: Ledger, send: MadeSend, failed: int) -> Line:
    line: Line = {}
    for name, asked in (
        ("preview_send_s", FailureFilter(send_id=send.id)),
        ("preview_all_s", FailureFilter()),
        ("preview_cause_s", FailureFilter(signature=_SIGNATURE)),
    ):
        line[name], seen = _timed(lambda asked=asked: _preview(ledger, asked))  # type: ignore[misc]
        if seen.total != failed:
            raise AssertionError(f"{name}: found {seen.total} of {failed}")
    line["plan_s"], _ = _timed(lambda: _plan(ledger, seen))
    line["chunks_s"], _ = _timed(lambda: finish(ledger))
    return line


def _preview(ledger: Ledger, asked: FailureFilter) -> Preview:
    with ledger.transaction() as connection:
        return requeue.judge(connection, asked, accepts_duplicates=False)


def _plan(ledger: Ledger, seen: Preview) -> None:
    with ledger.transaction() as connection:
        operations.plan(
            connection,
            OperationKind.REQUEUE,
            FailureFilter(),
            operator="benchmark",
            reason=None,
            as_of=seen.as_of,
            canary=False,
            undo_s=0,
        )


def _timed(what: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = what()
    return round(time.perf_counter() - began, 3), result


@contextmanager
def _ledger(server_url: str) -> Iterator[Ledger]:
    with temporary_database(server_url) as url:
        upgrade(url)
        ledger = Ledger(url, size=2, name="benchmark")
        ledger.open()
        yield ledger
        ledger.close()


def _failed_send(ledger: Ledger, count: int) -> MadeSend:
    send = make_send(ledger, count=count, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(
            "UPDATE delivery SET status = CASE WHEN row_no %% %(every)s = 0 THEN 'dead_lettered' ELSE 'sent' END,"
            " attempt_count = 5, settled_at = now(), first_attempt_at = now(), last_attempt_at = now()",
            {"every": _EVERY},
        )
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
            " signature, started_at, ended_at) SELECT send_id, row_no, gen_random_uuid(), 0, 5, channel, 'ches',"
            " CASE status WHEN 'sent' THEN 'accepted' ELSE 'transient' END, status,"
            " CASE WHEN status <> 'sent' THEN %s END, now(), now() FROM delivery",
            [_SIGNATURE],
        )
        connection.execute("UPDATE failure SET signature = %s", [_SIGNATURE])
        recount(connection, send.id)
        connection.execute("UPDATE send SET status = 'completed', completed_at = now(), settled_counts = '{}'")
    with ledger.autocommit() as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("VACUUM ANALYZE")
    return send
