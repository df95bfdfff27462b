"""What is done to a fleet, and when: a schedule that a seed decides, printed so that it can be played again."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.waiting import INTERVAL_S
from tests.system.chaos.fleet import MEMBERS
from tests.system.chaos.stage import Stage


@dataclass(frozen=True, order=True)
class Event:
    """
    Something done `at_s` seconds after the sends got going.

    what: provider, kill, kill_busiest, drain, term, freeze, thaw, remove, start, flush, redis_stop, redis_start,
    redis_hang, redis_freeze, redis_thaw, redis_fill, redis_demote, redis_heal, postgres_stop, postgres_start,
    postgres_crash.
    """

    at_s: float
    what: str
    arguments: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"+{self.at_s:6.2f} s {self.what} " + " ".join(f"{k}={v}" for k, v in self.arguments.items())


def event(at_s: float, what: str, **arguments: Any) -> Event:
    return Event(round(at_s, 2), what, arguments)


def during(begin_s: float, end_s: float, what: str, **arguments: Any) -> list[Event]:
    """A fault with an end."""
    ends = {
        "provider": "provider",
        "freeze": "thaw",
        "remove": "start",
        "redis_stop": "redis_start",
        "redis_freeze": "redis_thaw",
        "redis_fill": "redis_heal",
        "redis_demote": "redis_heal",
        "postgres_stop": "postgres_start",
    }
    kept = {"member": arguments["member"]} if what == "remove" else {}
    return [event(begin_s, what, **arguments), event(end_s, ends[what], **kept)]


def play(stage: Stage, events: Iterable[Event]) -> None:
    """Do everything at its time; the faults' ends are part of the schedule."""
    schedule: Sequence[Event] = sorted(events)
    for each in schedule:
        say(f"  {each}")
    began = time.monotonic()
    for each in schedule:
        let_pass(stage, each.at_s - (time.monotonic() - began))
        perform(stage, each)


def let_pass(stage: Stage, seconds: float) -> None:
    """Let a stretch of the fault go by, seeing that nobody ends who was not told to."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stage.fleet.check()
        time.sleep(INTERVAL_S)


def perform(stage: Stage, each: Event) -> None:
    """Do it."""
    orders: dict[str, Callable[..., object]] = {
        "provider": stage.provider.behave,
        "kill": stage.fleet.kill,
        "kill_busiest": stage.fleet.kill_busiest,
        "drain": stage.fleet.drain,
        "term": stage.fleet.term,
        "freeze": stage.fleet.freeze,
        "thaw": stage.fleet.thaw,
        "remove": lambda member: stage.fleet.kill(member, again=False),
        "start": stage.fleet.start,
        "flush": stage.stores.flush,
        "redis_stop": stage.stores.stop_redis,
        "redis_start": stage.stores.start_redis,
        "redis_hang": stage.stores.hang_redis,
        "redis_freeze": stage.stores.freeze_redis,
        "redis_thaw": stage.stores.thaw_redis,
        "redis_fill": stage.stores.fill_redis,
        "redis_demote": stage.stores.demote_redis,
        "redis_heal": stage.stores.heal_redis,
        "postgres_stop": stage.stores.stop_postgres,
        "postgres_start": stage.stores.start_postgres,
        "postgres_crash": stage.stores.crash_postgres,
    }
    orders[each.what](**each.arguments)


def roll(begin_s: float, *, every_s: float) -> list[Event]:
    """A deploy: every member is drained and started again, one after the other."""
    return [event(begin_s + n * every_s, "drain", member=member) for n, member in enumerate(MEMBERS)]


def say(line: str) -> None:
    """Tell the person, at once."""
    print(line, file=sys.stderr, flush=True)
