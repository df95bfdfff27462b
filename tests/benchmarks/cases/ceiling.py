"""The limit in Python, on the same servers and against the same sink."""

import sys

from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.peers import PROGRAMS, job, measure
from tests.benchmarks.sends import all_of, median_of


def ceiling_asyncio(bench: Bench) -> Line:
    """A bare asyncio loop with a committed claim and mark per window, no queue and no guards."""
    count = bench.size(20_000, 2_000)

    def run() -> Line:
        with job(bench, count=count) as work:
            command = [sys.executable, str(PROGRAMS / "bare_asyncio.py")]
            return measure(bench, work, command, environment=work.environment())

    return compared(bench, bench.repeat("ceiling_asyncio", run), recipients=count)


def compared(bench: Bench, runs: list[Line], *, recipients: int) -> Line:
    """The line of another's runs, with what Tidings reaches beside it in the same run."""
    ours = bench.result("merge_20k_0ms")
    per_s, span = median_of(runs, "per_s"), median_of(runs, "per_s_span")
    return {
        "recipients": recipients,
        "per_s": per_s,
        "per_s_span": span,
        "cpu_us": {name: median_of([run["cpu_us"] for run in runs], name) for name in runs[0]["cpu_us"]},
        "goals": {
            "Tidings ÷ this, end to end": goal(round(ours["per_s"] / per_s, 2), runs=all_of(runs, "per_s")),
            "Tidings ÷ this, from the first call": goal(
                round(ours["per_s_span"] / span, 2), runs=all_of(runs, "per_s_span")
            ),
        },
        "runs": runs,
    }
