"""A dispatch with 100,000 notifications pending; a day's retention of 1,000,000 deliveries, with a send beside it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shared.domain.digests import DIGEST_CAP
from shared.domain.states import SendStatus
from shared.jobs import Jobs
from shared.ledger import notifications, retention
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import load
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, run_send
from tests.benchmarks.stage import ALL, Stage, stage
from tests.support.digests import LOOPBACK, make_channel, post
from tests.support.factories import make_send
from tests.support.ledger_rows import recount
from tests.support.scripted_http import answer, scripted_http
from tests.support.servers import temporary_database
from workers.actors.digest import Dispatch
from workers.actors.retention import run_retention
from workers.broker import make_worker
from workers.middleware.runtime import Runtime

#: Rows per batch of the sends that are to be forgotten: the usual one.
_BATCH = 25
#: Deliveries of each of them.
_OF_A_SEND = 100_000


def digest_100k(bench: Bench) -> Line:
    """One channel with a backlog: the run finds what is new, takes fifty, counts the rest, calls, records."""
    count = bench.size(100_000, 5_000)

    def run() -> Line:
        with temporary_database(bench.servers.postgres_url) as url, scripted_http() as endpoint:
            endpoint.always("/hook", answer(200))
            upgrade(url)
            with _runtime(url, bench.servers.redis_url) as runtime:
                return _tell(runtime, f"{endpoint.url}/hook", count)

    runs = bench.repeat("digest_100k", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    return {
        "pending": count,
        **medians,
        "goals": {"seconds of a run": goal(medians["run_s"], runs=all_of(runs, "run_s"), at_most=2)},
        "runs": runs,
    }


def retention_1m(bench: Bench) -> Line:
    """Finished sends of 1,000,000 with their attempts go, while 20,000 are sent; the pace alone is measured first."""
    old, young = bench.size(1_000_000, 20_000), bench.size(20_000, 2_000)

    def run() -> Line:
        with stage(bench.servers, names=()) as set_up:
            _finished_sends(set_up.ledger, old)
            set_up.start(ALL)
            run_send(set_up, submission(1_000), count=1_000)
            alone = [run_send(set_up, submission(young), count=young) for _ in range(2)]
            return _forget(set_up, old, young, max(float(str(each["per_s"])) for each in alone))

    runs = bench.repeat("retention_1m", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    return {
        "deliveries": old,
        **medians,
        "goals": {
            "seconds": goal(medians["seconds"], runs=all_of(runs, "seconds"), at_most=300),
            "longest transaction, milliseconds": goal(
                medians["longest_ms"], runs=all_of(runs, "longest_ms"), at_most=250
            ),
            "share of the pace of sends kept": goal(medians["share"], runs=all_of(runs, "share"), at_least=0.8),
        },
        "runs": runs,
    }


def _tell(runtime: Runtime, url: str, count: int) -> Line:
    ledger = runtime.ledger
    channel = make_channel(ledger, url)
    post(ledger, "first")
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO event (tenant_id, dedup_key, kind, subject, severity)"
            " SELECT tenant_id, 'e' || n, 'update', 'about ' || n, 'high' FROM event, generate_series(1, %s) AS n",
            [count - 1],
        )
    began = time.perf_counter()
    with ledger.transaction() as connection:
        found = notifications.detect(connection, channel)
    detect_s = time.perf_counter() - began
    if found != count:
        raise AssertionError(f"{found} of {count} were found")
    dispatch = Dispatch(runtime, Jobs(make_worker(runtime.settings, process="benchmark")[0]))
    began = time.perf_counter()
    done = dispatch.run()
    run_s = time.perf_counter() - began
    if done.get("told") != DIGEST_CAP:
        raise AssertionError(f"the run did {done}")
    return {"detect_s": round(detect_s, 3), "run_s": round(run_s, 3)}


def _forget(set_up: Stage, old: int, young: int, alone_per_s: float) -> Line:
    with _runtime(set_up.database_url, set_up.servers.redis_url, retention_days=30) as runtime:
        took = [0.0]

        def forget() -> None:
            began = time.perf_counter()
            run_retention(runtime, every_s=0.0, silent_s=0.0)
            while not _is_over(runtime.ledger):
                run_retention(runtime, every_s=0.0, silent_s=0.0)
            took[0] = time.perf_counter() - began

        forgetting = threading.Thread(target=forget)
        forgetting.start()
        beside = []
        while forgetting.is_alive() and len(beside) < 3:
            beside.append(float(str(run_send(set_up, submission(young), count=young)["per_s"])))
        forgetting.join()
        with runtime.ledger.autocommit() as connection:
            run = retention.newest(connection)
    if run is None or run.removed.get("deliveries") != old:
        raise AssertionError(f"not all went: {run}")
    return {
        "seconds": round(took[0], 1),
        "longest_ms": float(run.longest_ms),
        "alone_per_s": alone_per_s,
        "beside_per_s": max(beside),
        "share": round(max(beside) / alone_per_s, 2),
    }


def _is_over(ledger: Ledger) -> bool:
    with ledger.autocommit() as connection:
        run = retention.newest(connection)
    return run is not None and run.ended_at is not None


def _finished_sends(ledger: Ledger, count: int) -> None:
    for first in range(0, count, _OF_A_SEND):
        _finished_send(ledger, min(_OF_A_SEND, count - first))
    with ledger.autocommit() as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("VACUUM ANALYZE")


def _finished_send(ledger: Ledger, count: int) -> None:
    send = make_send(ledger, count=count, status=SendStatus.SENDING, batch_size=_BATCH, tenant="past")
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(
            "UPDATE delivery SET status = 'sent', attempt_count = 1, settled_at = now(), first_attempt_at = now(),"
            " last_attempt_at = now() WHERE send_id = %s",
            [send.id],
        )
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
            " started_at, ended_at) SELECT send_id, row_no, gen_random_uuid(), 0, 1, channel, 'ches', 'accepted',"
            " status, now(), now() FROM delivery WHERE send_id = %s",
            [send.id],
        )
        recount(connection, send.id)
        connection.execute(
            "UPDATE send SET status = 'completed', completed_at = now() - interval '60 days',"
            " created_at = now() - interval '61 days', settled_counts = '{}' WHERE id = %s",
            [send.id],
        )


@contextmanager
def _runtime(database_url: str, redis_url: str, **settings: object) -> Iterator[Runtime]:
    loaded = load(database_url=database_url, redis_url=redis_url, **LOOPBACK, **settings)
    _, runtime = make_worker(loaded, process="benchmark")
    runtime.ledger.open()
    try:
        yield runtime
    finally:
        runtime.ledger.close()
        runtime.link.close()
