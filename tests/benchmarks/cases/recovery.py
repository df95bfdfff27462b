"""How long owed work stands still: after a worker that held it was killed, and after Redis was emptied."""

import time
from signal import SIGCONT, SIGSTOP

import redis

from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, submit
from tests.benchmarks.stage import Stage, stage
from tests.support.waiting import wait_until

_ALL_BUT_BULK = ("web", "worker_ingest", "worker_send", "worker_ops", "clock")
#: s; above every goal: what takes longer is a fault, not a figure
_PATIENCE_S = 150.0


def killed_worker(bench: Bench) -> Line:
    """SIGKILL to the worker that has all chains of a send, beside an idle one; settings as shipped."""
    body = submission(20_000)

    def run() -> Line:
        with stage(bench.servers, latency_ms=1_000, names=_ALL_BUT_BULK) as set_up:
            set_up.start(["worker_bulk"])
            first = set_up.processes["worker_bulk"]
            submit(set_up, body)
            wait_until(lambda: _accepted(set_up) > 0, timeout=60, what="the first delivery")
            set_up.start(["worker_bulk"])
            first.kill()
            return {"seconds": _until_it_moves(set_up)}

    runs = bench.repeat("killed_worker", run)
    return _line(runs, "seconds until the work of a killed worker moves again", at_most=20)


def emptied_redis(bench: Bench) -> Line:
    """
    FLUSHALL while the only message of a send waits: that of its chains, and that of its fan-out.

    Whoever would take the message is stopped (SIGSTOP) until it is gone. Settings as shipped.
    """
    chain_runs = bench.repeat("emptied_redis", lambda: _flushed(bench, "worker_bulk", queue="email_bulk"))
    ingest_runs = bench.repeat("emptied_redis", lambda: _flushed(bench, "worker_ingest", queue="ingest"))
    chains = _line(chain_runs, "seconds until a send in progress moves again", at_most=60)
    ingest = _line(ingest_runs, "seconds until an accepted send begins", at_most=60)
    return {**chains, "goals": {**chains["goals"], **ingest["goals"]}, "runs": chain_runs, "ingest_runs": ingest_runs}


def _flushed(bench: Bench, consumer: str, *, queue: str) -> Line:
    with (
        stage(bench.servers) as set_up,
        redis.Redis.from_url(bench.servers.redis_url) as client,
    ):
        stopped = set_up.processes[consumer]
        stopped.signal_group(SIGSTOP)
        submit(set_up, submission(1_000))
        wait_until(lambda: client.llen(f"tidings:broker:{queue}"), timeout=60, what="the message")
        client.flushall()
        stopped.signal_group(SIGCONT)
        return {"seconds": _until_it_moves(set_up)}


def _until_it_moves(set_up: Stage) -> float:
    """Seconds until the provider is called again; nothing is sent twice."""
    before, begun = _accepted(set_up), time.monotonic()
    wait_until(lambda: _accepted(set_up) > before, timeout=_PATIENCE_S, what="owed work to move again")
    seconds = round(time.monotonic() - begun, 2)
    assert set_up.sink.count()["duplicates"] == 0
    return seconds


def _accepted(set_up: Stage) -> int:
    return set_up.sink.count()["total"]


def _line(runs: list[Line], figure: str, *, at_most: float) -> Line:
    median = median_of(runs, "seconds")
    return {"goals": {figure: goal(median, runs=all_of(runs, "seconds"), at_most=at_most)}, "runs": runs}
