"""100,000 recipients accepted durably: seconds of the request, memory of the web process."""

from tests.benchmarks import usage
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, submit
from tests.benchmarks.stage import stage


def accept_100k(bench: Bench) -> Line:
    """An e-mail with two params each through gunicorn; nobody sends meanwhile."""
    count = bench.size(100_000, 5_000)
    body = submission(count)
    with stage(bench.servers, names=["web"]) as set_up:
        submit(set_up, submission(10))
        web = usage.tree(set_up.processes["web"].pid)

        def run() -> Line:
            usage.forget_peak(web)
            idle, cpu = usage.peak_mb(web), usage.cpu_of(set_up.roots())
            accepted = submit(set_up, body)
            used = usage.cpu_of(set_up.roots())
            return {
                "accepted_s": round(accepted.taken_s, 3),
                "idle_mb": round(idle),
                "peak_above_idle_mb": round(usage.peak_mb(web) - idle),
                "web_cpu_s": round(used["web"] - cpu["web"], 2),
                "postgres_cpu_s": round(used["postgres"] - cpu["postgres"], 2),
            }

        runs = bench.repeat("accept_100k", run)
    taken, peak = median_of(runs, "accepted_s"), max(run["peak_above_idle_mb"] for run in runs)
    return {
        "recipients": count,
        "body_mb": round(len(body) / 1e6, 1),
        "accepted_s": taken,
        "peak_above_idle_mb": peak,
        "goals": {
            "seconds to accept": goal(taken, runs=all_of(runs, "accepted_s"), at_most=5),
            "MB above idle at the peak": goal(peak, runs=all_of(runs, "peak_above_idle_mb"), at_most=300),
        },
        "runs": runs,
    }
