"""A fleet with nothing to do asks little of Redis: hosted ones are paid by it, or are shared."""

import time

import redis

from admin.local.procfile import read
from shared.ledger.db import Ledger
from tests.support.idle import AT_MOST_PER_S, commands, per_second
from tests.support.ledger_rows import scalar
from tests.support.processes import CHECKOUT, ProcessStarter
from tests.support.waiting import wait_until

#: s; several rounds of everything periodic but the reconciler
_LOOK_S = 8.0


def test_an_idle_fleet_stays_below_its_commands_per_second(
    ledger: Ledger, redis_url: str, process: ProcessStarter
) -> None:
    entries = [entry for entry in read(CHECKOUT / "Procfile") if entry.name.startswith(("worker_", "clock"))]
    for entry in entries:
        ready = "clock_started" if entry.name == "clock" else "ready for action"
        process(entry.shell_command, name=entry.name, ready=ready, timeout=90)
    wait_until(lambda: scalar(ledger, "SELECT count(*) FROM worker") == len(entries) - 1, what="every lease")
    with redis.Redis.from_url(redis_url) as client:
        before, begun = commands(client), time.monotonic()
        wait_until(lambda: time.monotonic() - begun > _LOOK_S, timeout=2 * _LOOK_S)
        found = per_second(before, commands(client), time.monotonic() - begun)
    assert found["lpop"] > 0, "no consumer looked"
    assert found["all"] <= AT_MOST_PER_S, found
