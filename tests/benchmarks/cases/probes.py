"""A provider that refuses everything, asked by eight worker processes: how many ask when the circuit half opens."""

import time
from collections.abc import Sequence
from itertools import pairwise

from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.machine import say
from tests.benchmarks.sends import status, submit
from tests.benchmarks.stage import Stage, stage
from tests.integration.workers.ches import EMAIL, calls, serve, taken
from tests.support.factories import books
from tests.support.scripted_http import Pause, Received, ScriptedHttp, Step, answer, scripted_http
from tests.support.waiting import wait_until

_WORKERS = 8
_SENDS = 16
_RECIPIENTS = 50
#: s; between two rounds, and what a refusal takes: whoever else were let in would come while the probe is under way
_RESET_S = 2.0
_REFUSAL_S = 0.3


def probe_storm(bench: Bench) -> Line:
    """Calls that reached the provider in each half-open round, while sends with due work waited in eight processes."""
    seconds = bench.size(40, 10)
    runs = bench.repeat("probe_storm", lambda: _run(bench, seconds))
    most, fewest = max(run["most"] for run in runs), min(run["fewest"] for run in runs)
    return {
        "workers": _WORKERS,
        "sends": _SENDS,
        "goals": {
            "most calls in a half-open round": goal(most, runs=[run["most"] for run in runs], at_most=1),
            "fewest": goal(fewest, runs=[run["fewest"] for run in runs], at_least=1),
        },
        "runs": runs,
    }


def _run(bench: Bench, seconds: int) -> Line:
    with scripted_http() as provider:
        came: list[float] = []

        def refuse(request: Received) -> Step:
            came.append(time.monotonic())
            return [Pause(_REFUSAL_S), *answer(503)]

        serve(provider, otherwise=refuse)
        settings = {
            "CHES_BASE_URL": f"{provider.url}/api/v1",
            "CHES_TOKEN_URL": f"{provider.url}/token",
            "CIRCUIT_RESET_MS": str(round(1_000 * _RESET_S)),
            "RETRY_BASE_DELAY_MS": "1000",
        }
        names = ("web", "worker_ingest", "worker_ops", "clock", *["worker_bulk"] * _WORKERS)
        with stage(bench.servers, names=names, settings=settings) as set_up:
            sends = [submit(set_up, submission(_RECIPIENTS)).id for _ in range(_SENDS)]
            wait_until(lambda: came, timeout=60, what="the first refusal")
            time.sleep(seconds)
            rounds = _rounds(list(came))
            serve(provider, otherwise=lambda request: _note(came, request))
            for send in sends:
                wait_until(lambda send=send: status(set_up, send) == "completed", timeout=120, what="every send")  # type: ignore[misc]
            _check(set_up, provider, sends)
    say(f"probe_storm: {len(rounds)} rounds")
    return {"rounds": len(rounds), "most": max(rounds), "fewest": min(rounds)}


def _note(came: list[float], request: Received) -> Step:
    came.append(time.monotonic())
    return taken(request)


def _rounds(came: Sequence[float]) -> list[int]:
    """How many calls came together, round by round; the first ones opened the circuit and are none."""
    groups = [1]
    for before, after in pairwise(came):
        if after - before > _RESET_S / 2:
            groups.append(0)
        groups[-1] += 1
    if len(groups) < 3:
        raise AssertionError(f"the circuit did not half open: {came}")
    return groups[1:]


def _check(set_up: Stage, provider: ScriptedHttp, sends: Sequence[object]) -> None:
    for send in sends:
        found = books(set_up.ledger, send)  # type: ignore[arg-type]
        assert found == {"sent": _RECIPIENTS}, found
    # Every send has the same recipients: each is accepted once for each send, and was refused before at most.
    assert len(calls(provider)) == _RECIPIENTS, len(provider.posts(EMAIL))
