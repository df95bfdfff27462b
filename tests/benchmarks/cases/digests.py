"""A dispatch with 100,000 notifications pending."""

import time

from shared.domain.digests import DIGEST_CAP
from shared.jobs import Jobs
from shared.ledger import notifications
from shared.ledger.migrate import upgrade
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of
from tests.benchmarks.stage import worker_runtime
from tests.support.digests import LOOPBACK, make_channel, post
from tests.support.scripted_http import answer, scripted_http
from tests.support.servers import temporary_database
from workers.actors.digest import Dispatch
from workers.broker import make_worker
from workers.middleware.runtime import Runtime


def digest_100k(bench: Bench) -> Line:
    """One channel with a backlog: the run finds what is new, takes fifty, counts the rest, calls, records."""
    count = bench.size(100_000, 5_000)

    def run() -> Line:
        with temporary_database(bench.servers.postgres_url) as url, scripted_http() as endpoint:
            endpoint.always("/hook", answer(200))
            upgrade(url)
            with worker_runtime(url, bench.servers.redis_url, **LOOPBACK) as runtime:
                return _tell(runtime, f"{endpoint.url}/hook", count)

    runs = bench.repeat("digest_100k", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    return {
        "pending": count,
        **medians,
        "goals": {"seconds of a run": goal(medians["run_s"], runs=all_of(runs, "run_s"), at_most=2)},
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
