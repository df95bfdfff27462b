"""`python -m tests.benchmarks [CASE…]`: one JSON line per case on stdout, progress on stderr."""

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.benchmarks import machine, page
from tests.benchmarks.bench import Bench
from tests.benchmarks.cases.acceptance import accept_100k
from tests.benchmarks.cases.ceiling import ceiling_asyncio
from tests.benchmarks.cases.digests import digest_100k
from tests.benchmarks.cases.failures import failures_100k
from tests.benchmarks.cases.idle import idle_fleet
from tests.benchmarks.cases.lanes import single_during_bulk
from tests.benchmarks.cases.memory import redis_1m
from tests.benchmarks.cases.merge import guards, merge_20k_0ms, merge_200ms
from tests.benchmarks.cases.pages import pages_1m
from tests.benchmarks.cases.peers import peer_bullmq, peer_celery
from tests.benchmarks.cases.probes import probe_storm
from tests.benchmarks.cases.reconcile import reconcile_100k
from tests.benchmarks.cases.recovery import emptied_redis, killed_worker
from tests.benchmarks.cases.requeue import requeue_100k
from tests.benchmarks.cases.retention import retention_1m, retention_killed
from tests.benchmarks.cases.viewers import viewers_100
from tests.benchmarks.stage import servers

CASES = {
    case.__name__: case
    for case in (
        merge_20k_0ms,
        ceiling_asyncio,
        peer_bullmq,
        peer_celery,
        merge_200ms,
        guards,
        accept_100k,
        single_during_bulk,
        redis_1m,
        requeue_100k,
        reconcile_100k,
        pages_1m,
        viewers_100,
        probe_storm,
        killed_worker,
        emptied_redis,
        idle_fleet,
        digest_100k,
        retention_1m,
        retention_killed,
        failures_100k,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all unless named: {', '.join(CASES)}")
    parser.add_argument("--runs", type=int, default=3, help="how often each case is measured; medians are given")
    parser.add_argument(
        "--small", action="store_true", help="small sizes: shows that a case works, not what it reaches"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the results into this page's table too")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.write and options.small:
        parser.error("figures of --small are not for a page")
    signal.signal(signal.SIGTERM, _leave)
    lines = []
    with servers() as running:
        bench = Bench(running, options.runs, options.small, CASES)
        facts = {**machine.facts(running.folder), **bench.versions}
        for name in options.cases or CASES:
            line = {**bench.result(name), "machine": facts}
            lines.append(line)
            print(json.dumps(line), flush=True)
    if options.write:
        page.write(options.write, lines)
    return 0


def _leave(number: int, _frame: object) -> None:
    """End as after Ctrl-C: servers, databases and processes go first."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
