"""All faults at random, for minutes, decided by a seed."""

import random
import time

from tests.system.chaos.events import Event, during, event, let_pass, play
from tests.system.chaos.fleet import MEMBERS
from tests.system.chaos.outages import get_going
from tests.system.chaos.provider import LATENCY_MS
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import Stage
from tests.system.chaos.verdict import Found, judge, settle

_WORKERS = tuple(member for member in MEMBERS if member.startswith("worker_"))
_CUT = {"kind": "cut", "share": 0.1}
#: What one draw may be: how long it lasts (s), and what it is.
_PROVIDER = (
    {"listening": False},
    {"faults": [{"kind": "status", "status": 503}]},
    {"faults": [{"kind": "status", "status": 429, "share": 0.3, "headers": {"Retry-After": "2"}}]},
    {"faults": [_CUT]},
    {"faults": [_CUT], "lookup": "down"},
    {"faults": [{"kind": "hang", "share": 0.05}]},
    {"faults": [{"kind": "drip", "share": 0.05, "every_ms": 100}]},
    {"latency_ms": 1_000},
)
_REDIS = ("redis_stop", "redis_fill", "redis_demote", "redis_freeze")


def draw(rng: random.Random, seconds: float) -> list[Event]:
    """
    A schedule: kills and flushes all the time, and beside them one fault after another that has an end.

    Faults of the three kinds of server take turns, since a person's fleet rarely loses all at once; kills strike in
    the middle of any of them.
    """
    events: list[Event] = []
    at = 1.0
    while at < seconds:
        lasts = rng.uniform(2.0, 8.0)
        kind = rng.choice(("provider", "provider", "redis", "hang", "postgres", "freeze", "drain", "clock"))
        end = at + lasts
        match kind:
            case "provider":
                events += during(at, end, "provider", **rng.choice(_PROVIDER))
            case "redis":
                what = rng.choice(_REDIS)
                events += during(at, end, what, **({"forget": rng.random() < 0.5} if what == "redis_stop" else {}))
            case "hang":
                events.append(event(at, "redis_hang", seconds=int(lasts)))
            case "postgres" if rng.random() < 0.5:
                events.append(event(at, "postgres_crash"))
            case "postgres":
                events += during(at, end, "postgres_stop")
            case "freeze":
                events += during(at, at + rng.uniform(2.0, 12.0), "freeze", member=rng.choice(_WORKERS))
            case "drain":
                events.append(event(at, "drain", member=rng.choice(_WORKERS)))
            case _:
                events += during(at, end, "remove", member="clock")
        at = max(each.at_s for each in events) + rng.uniform(0.5, 3.0)
    quiet = [
        each
        for each in events
        if each.what in ("redis_stop", "redis_hang", "redis_freeze", "freeze", "postgres_stop", "drain")
    ]
    for n in range(int(seconds / 5)):
        when = 5.0 * n + rng.uniform(0.0, 5.0)
        events.append(event(when, "kill", member=rng.choice(_WORKERS)))
        if not any(each.at_s - 1 <= when <= each.at_s + 9 for each in quiet):
            events.append(event(when, "flush"))
    return events


@scenario()
def everything(stage: Stage, size: Size) -> Found:
    """
    100,000 recipients, ten minutes of everything above at random (800 and a quarter of a minute in the short form).

    All the while every fiftieth message is taken without an answer.
    Nothing is failed, nothing is sent twice, nothing is left unsure: whatever was in doubt is looked up.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=size.pick(short=250, full=60), cut=0.02)
    stage.submit(size.pick(short=800, full=100_000))
    stage.submit(*[1] * 10)
    get_going(stage, accepted=50)
    play(stage, draw(stage.rng, size.pick(short=15, full=600)))
    stage.provider.usually(latency_ms=LATENCY_MS)
    let_pass(stage, 5.0)
    settle(stage, within_s=size.pick(short=240, full=1_800))
    return judge(stage, since=since)
