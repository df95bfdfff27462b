"""A merge send to a provider that answers at once, one that takes 200 ms, and what the guards cost."""

from shared.settings import Settings
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, run_send
from tests.benchmarks.stage import ALL, stage

#: seconds the slow provider takes
_LATENCY_S = 0.2


def merge_20k_0ms(bench: Bench) -> Line:
    """20,000 recipients, from the 202 to `completed`, every guard on."""
    count = bench.size(20_000, 2_000)
    body = submission(count)
    with stage(bench.servers) as set_up:
        run_send(set_up, submission(1_000), count=1_000)
        runs = bench.repeat("merge_20k_0ms", lambda: run_send(set_up, body, count=count))
    return {
        "recipients": count,
        "per_s": median_of(runs, "per_s"),
        "per_s_span": median_of(runs, "per_s_span"),
        "cpu_us": _median_cpu(runs),
        "goals": {
            "deliveries per second, end to end": goal(
                median_of(runs, "per_s"), runs=all_of(runs, "per_s"), at_least=3_000
            )
        },
        "runs": runs,
    }


def merge_200ms(bench: Bench) -> Line:
    """A slow provider without a cap: how much of what the calls in flight allow is reached."""
    count = bench.size(20_000, 2_000)
    body = submission(count)
    in_flight = _default("chains_per_send") * _default("window_max")
    allowed = in_flight / _LATENCY_S
    settings = {"CHES_MAX_CONCURRENT_REQUESTS": "0"}
    with stage(bench.servers, latency_ms=round(_LATENCY_S * 1000), settings=settings) as set_up:
        run_send(set_up, submission(1_000), count=1_000)
        runs = bench.repeat("merge_200ms", lambda: run_send(set_up, body, count=count))
    per_s = median_of(runs, "per_s_span")
    return {
        "recipients": count,
        "in_flight": in_flight,
        "allowed_per_s": allowed,
        "per_s_span": per_s,
        "per_s": median_of(runs, "per_s"),
        "goals": {
            "share of what the calls in flight allow": goal(
                round(per_s / allowed, 3), runs=all_of(runs, "per_s_span"), at_least=0.9
            )
        },
        "runs": runs,
    }


def guards(bench: Bench) -> Line:
    """The same send with circuit, gate and slots, and without; runs alternate, so that both see the same machine."""
    count = bench.size(20_000, 2_000)
    body = submission(count)
    runs: dict[str, list[Line]] = {"on": [], "off": []}
    with stage(bench.servers, names=[name for name in ALL if name != "worker_bulk"]) as set_up:

        def pair() -> Line:
            for kind, module in (("on", "workers.main"), ("off", "tests.benchmarks.programs.unguarded")):
                set_up.start(["worker_bulk"], module=module)
                run_send(set_up, submission(1_000), count=1_000)
                runs[kind].append(run_send(set_up, body, count=count))
                set_up.stop("worker_bulk")
            return {kind: made[-1]["per_s_span"] for kind, made in runs.items()}

        bench.repeat("guards", pair)
    on, off = (median_of(runs[kind], "per_s_span") for kind in ("on", "off"))
    both = [*all_of(runs["on"], "per_s_span"), *all_of(runs["off"], "per_s_span")]
    return {
        "recipients": count,
        "per_s_on": on,
        "per_s_off": off,
        "cpu_us_on": _median_cpu(runs["on"]),
        "cpu_us_off": _median_cpu(runs["off"]),
        "goals": {"rate with guards, as a share of that without": goal(round(on / off, 3), runs=both, at_least=0.85)},
        "runs": runs,
    }


def _median_cpu(runs: list[Line]) -> dict[str, float]:
    return {name: median_of([run["cpu_us"] for run in runs], name) for name in runs[0]["cpu_us"]}


def _default(setting: str) -> int:
    return int(Settings.model_fields[setting].default)
