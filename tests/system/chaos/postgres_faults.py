"""The faults of Postgres: crashed, restarted, gone for a while."""

import time

from tests.system.chaos.events import during, event, play
from tests.system.chaos.outages import get_going
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import CAP, Stage
from tests.system.chaos.verdict import Found, judge, settle


@scenario()
def postgres_crashes(stage: Stage, size: Size) -> Found:
    """
    Postgres crashes and recovers, three times: commits that were not flushed are undone.

    Guards: an outcome that was undone leaves its row `sending`, which nobody sends again; renewals go on afterwards.
    """
    since = time.monotonic()
    stage.pace(100)
    stage.submit(size.pick(short=1_500, full=5_000))
    get_going(stage, accepted=200)
    play(stage, [event(4.0 * n, "postgres_crash") for n in range(3)])
    settle(stage, within_s=240)
    return judge(stage, since=since, in_doubt=3 * 3 * CAP, attempts=3)


@scenario()
def postgres_stopped(stage: Stage, size: Size) -> Found:
    """
    Postgres is stopped for 20 s (8 in the short form, above LEASE_MS 6000), with calls in flight.

    Guards: outcomes that are known are kept until Postgres is back; nobody calls on a lease that ran out.
    """
    since = time.monotonic()
    stage.submit(size.pick(short=2_000, full=5_000))
    get_going(stage, accepted=200)
    play(stage, during(0.0, size.pick(short=8, full=20), "postgres_stop"))
    settle(stage, within_s=240)
    return judge(stage, since=since, in_doubt=3 * CAP, attempts=3)
