"""What a fleet with nothing to do asks of Redis."""

import time

import redis

from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, run_send, single
from tests.benchmarks.stage import stage
from tests.support.idle import AT_MOST_PER_S, commands, per_second


def idle_fleet(bench: Bench) -> Line:
    """Commands per second with one of each process type, its work done; those within a script count one by one."""
    seconds = bench.size(60, 5)

    def run() -> Line:
        with redis.Redis.from_url(bench.servers.redis_url) as client:
            before, begun = commands(client), time.monotonic()
            time.sleep(seconds)
            return per_second(before, commands(client), time.monotonic() - begun)

    with stage(bench.servers) as set_up:
        run_send(set_up, single(0), count=1)
        runs = bench.repeat("idle_fleet", run)
    median = median_of(runs, "all")
    return {
        "seconds": seconds,
        "goals": {"Redis commands per second": goal(median, runs=all_of(runs, "all"), at_most=AT_MOST_PER_S)},
        "runs": runs,
    }
