"""The Failures pages over 100,000 dead letters: milliseconds of each page, of the section, of freezing a requeue."""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from admin.app import create_app
from admin.extensions import db, installed
from admin.monitoring import failure_groups
from admin.monitoring.snapshot import Sources
from shared.domain.requeue import FailureFilter, OperationKind
from shared.ledger import failure_counts, operations, requeue
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import load
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import median_of
from tests.support.browser import SECRET_KEY, Browser
from tests.support.failing import make_failures
from tests.support.servers import temporary_database

_SENDS, _CAUSES, _TENANTS = 50, 20, 5
#: Addresses that each tenant suppresses, none of them one of these; and every which row was reported as not delivered.
_SUPPRESSED, _REPORTED_EVERY = 5_000, 20
_LOOKS = 9


def failures_100k(bench: Bench) -> Line:
    """Dead letters of 50 sends, 20 causes and 5 tenants; each page is opened nine times, and its median taken."""
    count = bench.size(100_000, 5_000)

    def run() -> Line:
        with temporary_database(bench.servers.postgres_url) as url:
            upgrade(url)
            ledger = Ledger(url, size=2, name="benchmark")
            ledger.open()
            try:
                return _run(ledger, url, count)
            finally:
                ledger.close()

    runs = bench.repeat("failures_100k", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    pages = max(value for name, value in medians.items() if name.endswith("_page_ms"))
    return {
        "failures": count,
        **medians,
        "goals": {
            "ms of the slowest page": goal(pages, at_most=200),
            "seconds to freeze": goal(medians["plan_ms"] / 1000, at_most=2),
        },
        "runs": runs,
    }


def _run(ledger: Ledger, url: str, count: int) -> Line:
    causes = [f"{number:012x}" for number in range(_CAUSES)]
    for number in range(_SENDS):
        make_failures(
            ledger,
            count=count // _SENDS,
            cause=causes[number % _CAUSES],
            title=f"CHES 400: fault {number % _CAUSES}",
            tenant=f"tenant {number % _TENANTS}",
        )
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO suppression (tenant_id, channel, address, reason)"
            " SELECT id, 'email', 'nobody' || number || '@example.com', 'bounced'"
            " FROM tenant, generate_series(1, %s) AS number",
            [_SUPPRESSED],
        )
        connection.execute(
            "UPDATE delivery SET receipt_status = 'undelivered' WHERE row_no %% %s = 0",
            [_REPORTED_EVERY],
        )
        connection.execute(
            "INSERT INTO receipt (send_id, row_no, epoch, provider, status)"
            " SELECT send_id, row_no, epoch, 'ches', receipt_status FROM delivery WHERE receipt_status IS NOT NULL"
        )
        connection.execute("VACUUM ANALYZE")
    app = create_app(
        load(database_url=url, redis_url="redis://127.0.0.1:1/0", secret_key=SECRET_KEY, environment="Benchmark")
    )
    try:
        browser = Browser(app)
        root = "/admin/monitoring"
        line = {
            "failures_page_ms": _of(lambda: _open(browser, f"{root}/failures")),
            "by_tenant_page_ms": _of(lambda: _open(browser, f"{root}/failures?by=tenant")),
            "list_page_ms": _of(lambda: _open(browser, f"{root}/failures/list")),
            "group_page_ms": _of(lambda: _open(browser, f"{root}/failures/groups/{causes[3]}")),
            "preview_all_page_ms": _of(lambda: _open(browser, f"{root}/operations/new?kind=requeue")),
            "preview_few_page_ms": _of(lambda: _open(browser, f"{root}/operations/new?kind=requeue&first=100")),
            "preview_group_page_ms": _of(
                lambda: _open(browser, f"{root}/operations/new?kind=requeue&group={causes[3]}")
            ),
            "section_ms": _of(lambda: _sample(app)),
        }
    finally:
        with app.app_context():
            db.engine.dispose()
        installed(app).close()
    return {**line, "plan_ms": _once(lambda: _plan(ledger, count))}


def _open(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    if answer.status_code != 200:
        raise AssertionError(f"{path}: {answer.status}")


def _sample(app: Any) -> None:
    with app.app_context():
        failure_groups.sample(Sources(installed(app), datetime.now(UTC)))


def _plan(ledger: Ledger, count: int) -> None:
    with ledger.transaction() as connection:
        as_of = requeue.ledger_now(connection)
        planned, _ = operations.plan(
            connection, OperationKind.REQUEUE, FailureFilter(), operator="benchmark", reason=None, as_of=as_of
        )
        if planned is None or planned.total != count:
            raise AssertionError(planned)
        failure_counts.summary(connection)


def _once(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return round(1000 * (time.perf_counter() - began), 1)


def _of(what: Callable[[], None]) -> float:
    return round(statistics.median(_once(what) for _ in range(_LOOKS)), 1)
