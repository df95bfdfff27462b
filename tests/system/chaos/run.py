"""Run scenarios, those with the same needs on one fleet; a scenario that fails takes its fleet with it."""

import math
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import redis

from admin.local.tether import Tether
from tests.system.chaos import everything, outages, postgres_faults, redis_faults, stops, workers
from tests.system.chaos.events import say
from tests.system.chaos.relay import relay
from tests.system.chaos.scenario import SCENARIOS, Scenario, Size
from tests.system.chaos.stage import Stage, stage
from tests.system.chaos.verdict import Found

#: Where the scenarios are; importing them fills SCENARIOS.
MODULES = (outages, workers, redis_faults, postgres_faults, stops, everything)


@dataclass(frozen=True)
class Ended:
    """A scenario's end: its figures, or what went wrong."""

    scenario: Scenario
    seed: str
    found: Found | None
    fault: str = ""


class Stages:
    """Keeps one stage at a time."""

    def __init__(self, tether: Tether, *, patience_s: float = math.inf) -> None:
        self._tether, self._patience_s = tether, patience_s
        self._stack = ExitStack()
        self._stage: Stage | None = None
        self._needs: Any = None

    def get(self, scenario: Scenario, seed: str) -> Stage:
        """A healthy stage with what the scenario needs."""
        if self._stage is None or self._needs != scenario.needs:
            self.close()
            provider = self._stack.enter_context(relay(seed)) if scenario.provider == "smtp" else None
            self._stage = self._stack.enter_context(
                stage(self._tether, seed=seed, settings=scenario.settings, provider=provider)
            )
            self._needs = scenario.needs
        self._stage.patience_s = self._patience_s
        self._stage.fleet.wait_until_ready()
        return self._stage

    def close(self) -> None:
        """End the stage there is."""
        self._stage = None
        self._stack.close()


def run_one(stages: Stages, scenario: Scenario, *, seed: str, size: Size) -> Found:
    """
    Run a scenario under a seed.

    Raises: AssertionError with what was found; the output of the processes was shown then.
    """
    playing = stages.get(scenario, seed)
    playing.begin(f"{seed} {scenario.name}")
    try:
        return scenario.run(playing, size)
    except BaseException:
        say(playing.fleet.output())
        stages.close()
        raise


def run_all(
    tether: Tether, names: Iterable[str], *, seed: str, size: Size, patience_s: float = math.inf
) -> Iterator[Ended]:
    """Run these scenarios, those with equal needs together, whatever becomes of each."""
    stages = Stages(tether, patience_s=patience_s)
    try:
        for scenario in sorted((SCENARIOS[name] for name in names), key=lambda each: each.needs):
            say(f"{scenario.name} SEED={seed}: {scenario.summary}")
            try:
                yield Ended(scenario, seed, run_one(stages, scenario, seed=seed, size=size))
            except (AssertionError, OSError, psycopg.Error, redis.RedisError) as error:
                yield Ended(scenario, seed, None, "".join(traceback.format_exception(error, limit=-2)))
    finally:
        stages.close()
