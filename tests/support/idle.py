"""What a fleet with nothing to do asks of Redis, counted by Redis."""

from collections.abc import Mapping
from typing import Any

#: commands per second, with one of each process type and its default threads, that an idle fleet stays below
AT_MOST_PER_S = 250


def commands(client: Any) -> dict[str, int]:
    """How often each command was called since the server started, those that scripts call included."""
    return {name.removeprefix("cmdstat_"): int(each["calls"]) for name, each in client.info("commandstats").items()}


def per_second(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Calls per second of each command, and of `all` of them."""
    rates = {name: (calls - before.get(name, 0)) / seconds for name, calls in after.items()}
    return {"all": round(sum(rates.values()), 1)} | {
        name: round(rate, 2) for name, rate in sorted(rates.items()) if rate
    }
