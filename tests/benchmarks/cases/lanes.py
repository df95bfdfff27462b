"""Single sends while bulk runs: how long one person waits behind 100,000."""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from shared.domain.ids import delivery_key
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import Accepted, all_of, run_send, single, status, submit
from tests.benchmarks.stage import Stage, stage
from tests.support.waiting import wait_until

_PER_S = 10


def single_during_bulk(bench: Bench) -> Line:
    """Milliseconds from the 202 of a single send to its arrival at the provider."""
    bulk, singles = bench.size(100_000, 10_000), bench.size(200, 30)
    body = submission(bulk)
    with stage(bench.servers) as set_up:
        run_send(set_up, single(0), count=1)
        runs = bench.repeat("single_during_bulk", lambda: _run(set_up, body, bulk=bulk, singles=singles))
    figures = {name: statistics.median(run[name] for run in runs) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")}
    return {
        "bulk_recipients": bulk,
        "singles": singles,
        "per_s": _PER_S,
        **figures,
        "goals": {"milliseconds, 99th percentile": goal(figures["p99_ms"], runs=all_of(runs, "p99_ms"), at_most=2_000)},
        "runs": runs,
    }


def _run(set_up: Stage, body: bytes, *, bulk: int, singles: int) -> Line:
    """Two bulk sends, so that the lane is busy until the last single one has been sent."""
    set_up.sink.reset()
    bulks = [submit(set_up, body).id, submit(set_up, body).id]
    wait_until(lambda: set_up.sink.count()["total"] > 0, timeout=30, what="the first bulk delivery")
    accepted = _submit_evenly(set_up, singles)
    busy = any(status(set_up, send) == "sending" for send in bulks)
    for send in [*bulks, *(one.id for one in accepted)]:
        wait_until(lambda send=send: status(set_up, send) == "completed", timeout=600, what="all sends")  # type: ignore[misc]
    counts, arrivals = set_up.sink.count(), set_up.sink.arrivals()
    assert counts["total"] == counts["distinct"] == 2 * bulk + singles, counts
    waited = sorted(1000 * (arrivals[str(delivery_key(one.id, 1, 0))] - one.at) for one in accepted)
    return {
        "p50_ms": _percentile(waited, 50),
        "p95_ms": _percentile(waited, 95),
        "p99_ms": _percentile(waited, 99),
        "max_ms": round(waited[-1], 1),
        "accepted_p99_ms": _percentile(sorted(1000 * one.taken_s for one in accepted), 99),
        "bulk_to_the_end": busy,
    }


def _submit_evenly(set_up: Stage, singles: int) -> list[Accepted]:
    """Submit at a steady rate, whatever the answers take."""
    begun = time.monotonic()
    waiting: list[Future[Accepted]] = []
    with ThreadPoolExecutor(8) as pool:
        for number in range(singles):
            time.sleep(max(0.0, begun + number / _PER_S - time.monotonic()))
            waiting.append(pool.submit(submit, set_up, single(number)))
        return [future.result() for future in waiting]


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 1)
