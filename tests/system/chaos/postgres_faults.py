"""The faults of Postgres: crashed, restarted, gone for a while."""

import time

from tests.support.waiting import wait_until
from tests.system.chaos.events import during, event, play
from tests.system.chaos.outages import get_going, wait_for_calls
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import CAP, Stage
from tests.system.chaos.verdict import Found, judge, settle

#: s; after Postgres is back: 2 s for the pool, a renewal, a look for due work, and a chain
_MOVING_AGAIN_S = 10.0


@scenario()
def postgres_crashes(stage: Stage, size: Size) -> Found:
    """
    Postgres crashes and recovers, eight times (three): commits that were not flushed are undone.

    Guards: a claim is on disk before its call; an outcome that was undone leaves its row `sending`, which nobody sends
    again.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=100)
    stage.submit(size.pick(short=1_000, full=5_000))
    for _ in range(size.pick(short=3, full=8)):
        get_going(stage, accepted=stage.accepted() + 100)
        wait_for_calls(stage)
        play(stage, [event(0.0, "postgres_crash")])
    settle(stage, within_s=240)
    return judge(stage, since=since, in_doubt=size.pick(short=3, full=8) * CAP, attempts=3)


@scenario()
def postgres_stopped(stage: Stage, size: Size) -> Found:
    """
    Postgres is stopped for 20 s (12 in the short form), with calls in flight: above LEASE_MS, 6000, and above the 10 s
    that a caller waits for a connection.

    Guards: outcomes that are known are kept until Postgres is back; nobody calls on a lease that ran out; the pool asks
    again every few seconds, however long it lasted.
    """
    since = time.monotonic()
    stage.submit(size.pick(short=1_000, full=5_000))
    get_going(stage, accepted=200)
    play(stage, during(0.0, size.pick(short=12, full=20), "postgres_stop"))
    accepted = stage.accepted()
    wait_until(lambda: stage.accepted() > accepted, timeout=_MOVING_AGAIN_S, what="the send to move again")
    settle(stage, within_s=240)
    return judge(stage, since=since, in_doubt=3 * CAP, attempts=3)
