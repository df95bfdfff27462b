"""A send to a million in progress: what Redis holds, and the memory of every process type."""

import time
from collections import defaultdict

import redis

from tests.benchmarks import usage
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.machine import say
from tests.benchmarks.sends import status, submit
from tests.benchmarks.stage import Stage, stage

_MB = 2**20
#: MB; what a dyno of the smallest size has
_DYNO_MB = 512


def redis_1m(bench: Bench) -> Line:
    """One run: figures are peaks over a minute of sending, so there is nothing to take a median of."""
    count, seconds = bench.size(1_000_000, 20_000), bench.size(60, 3)
    body = submission(count)
    with stage(bench.servers) as set_up, redis.Redis.from_url(bench.servers.redis_url) as client:
        at_rest = {name: round(usage.pss_mb(root.pid)) for name, root in set_up.processes.items()}
        empty = _dataset(client)
        accepted = submit(set_up, body)
        say(f"redis_1m: accepted in {accepted.taken_s:.1f} s")
        redis_peak, peaks, samples = _watch(set_up, client, accepted.id, seconds=seconds)
        largest = max(peaks.values())
        delivered = set_up.sink.count()["total"]
    above = round(max(0, redis_peak - empty) / _MB, 2)
    return {
        "recipients": count,
        "accepted_s": round(accepted.taken_s, 2),
        "watched_s": seconds,
        "delivered_meanwhile": delivered,
        "redis_dataset_mb": above,
        "at_rest_mb": at_rest,
        "peak_mb": peaks,
        "goals": {
            "MB in Redis above empty": goal(above, runs=[above], at_most=20),
            "MB of the largest process type": goal(largest, runs=list(peaks.values()), at_most=_DYNO_MB),
        },
        "samples": samples,
    }


def _watch(set_up: Stage, client: "redis.Redis", send_id: object, *, seconds: int) -> tuple[int, dict[str, int], int]:
    """Peaks of Redis' data and of each process type's memory, looked at once a second; how often that was."""
    dataset, samples = 0, 0
    peaks: dict[str, int] = defaultdict(int)
    until = time.monotonic() + seconds
    while time.monotonic() < until and status(set_up, send_id) != "completed":  # type: ignore[arg-type]
        dataset = max(dataset, _dataset(client))
        for name, running in set_up.processes.items():
            peaks[name] = max(peaks[name], round(usage.pss_mb(running.pid)))
        samples += 1
        time.sleep(1)
    for name, running in set_up.processes.items():
        # A peak between two looks: the web process had its own while it accepted.
        highest = usage.peak_mb(usage.tree(running.pid))
        peaks[name] = max(peaks[name], round(highest))
    return dataset, dict(peaks), samples


def _dataset(client: "redis.Redis") -> int:
    return int(client.info("memory")["used_memory_dataset"])
