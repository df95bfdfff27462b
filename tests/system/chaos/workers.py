"""The workers' faults: killed, one by one and all at once; the clock's: dead, two of them."""

import time

from tests.support.waiting import wait_until
from tests.system.chaos.events import during, event, let_pass, play
from tests.system.chaos.fleet import MEMBERS
from tests.system.chaos.outages import get_going, wait_for_calls
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import SETTINGS, Stage
from tests.system.chaos.verdict import Found, judge, settle

_WORKERS = tuple(member for member in MEMBERS if member.startswith("worker_"))
#: s; after a kill owed work moves again within the lease, and what a process takes to start on a busy machine
_MOVING_AGAIN_S = 30.0


@scenario()
def kills(stage: Stage, size: Size) -> Found:
    """
    A worker is killed every 2 s in a send of 20,000: only calls in flight at the kills are in doubt.

    In turns that with most calls in flight, as soon as there is one, and a random one. LEASE_MS 6000. Guard: what a
    dead worker had in a call is proved, never sent again.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=size.pick(short=200, full=100))
    stage.submit(size.pick(short=1_000, full=20_000))
    get_going(stage, accepted=100)
    count = size.pick(short=4, full=60)
    kills = [
        event(0.5 + 2 * n, "kill", member=stage.rng.choice(_WORKERS))
        if n % 2
        else event(0.5 + 2 * n, "kill_busiest", among="worker_bulk")
        for n in range(count)
    ]
    wait_for_calls(stage)
    play(stage, kills)
    settle(stage, within_s=size.pick(short=180, full=900))
    in_flight = sum(death.in_flight for death in stage.fleet.deaths)
    assert in_flight > 0, "no kill struck a call"
    return judge(stage, since=since, in_doubt=in_flight)


@scenario(nightly=True)
def killed_once(stage: Stage, size: Size) -> Found:
    """Both bulk workers are killed at once: owed work moves again within 20 s (LEASE_MS 6000, and a start)."""
    since = time.monotonic()
    stage.submit(size.pick(short=2_000, full=5_000))
    get_going(stage, accepted=300)
    wait_for_calls(stage)
    play(stage, [event(0.0, "kill", member="worker_bulk"), event(0.0, "kill", member="worker_bulk.2")])
    accepted = stage.accepted()
    wait_until(lambda: stage.accepted() > accepted, timeout=_MOVING_AGAIN_S, what="the send to move again")
    settle(stage, within_s=180)
    return judge(stage, since=since, in_doubt=sum(death.in_flight for death in stage.fleet.deaths))


@scenario()
def no_clock(stage: Stage, size: Size) -> Found:
    """The clock is dead for 10 s, in which a short outage leaves retries due: they wait for its return, none fails."""
    since = time.monotonic()
    stage.submit(size.pick(short=1_000, full=3_000))
    get_going(stage, accepted=100)
    outage = during(0.5, 2.0, "provider", faults=[{"kind": "status", "status": 503}])
    play(stage, [*during(0.0, 10.0, "remove", member="clock"), *outage])
    settle(stage, within_s=180)
    return judge(stage, since=since, in_doubt=0, attempts=3)


@scenario()
def two_clocks(stage: Stage, size: Size) -> Found:
    """
    Two clocks run: every tick is enqueued once.

    Counted while the only consumer of the queue is frozen for 6 s: DUE_WORK_INTERVAL_MS 500 makes 12 messages, the
    reconciler 3, the prover 1 or 2, housekeeping at most 1. Guard: a tick is claimed in Postgres before it is enqueued.
    """
    since = time.monotonic()
    stage.submit(size.pick(short=500, full=2_000))
    get_going(stage, accepted=100)
    stage.fleet.start("clock.2")
    stage.fleet.wait_for("clock.2")
    stage.fleet.freeze("worker_ops")
    queued, began = stage.stores.queued("ops"), time.monotonic()
    let_pass(stage, 6.0)
    came, seconds = stage.stores.queued("ops") - queued, time.monotonic() - began
    stage.fleet.thaw()
    due = seconds * 1_000 / int(SETTINGS["DUE_WORK_INTERVAL_MS"])
    passes = seconds * 1_000 / int(SETTINGS["DELIVERY_RECONCILE_INTERVAL_MS"])
    assert due / 2 < came <= due + passes + 6, (came, due, passes)
    settle(stage, within_s=180)
    stage.fleet.drain("clock.2", again=False)
    return judge(stage, since=since, in_doubt=0)
