"""Stops as platforms make them, with the times of the settings as shipped: told to end, killed at it, frozen."""

import time

from shared.settings import Settings
from tests.support.waiting import wait_until
from tests.system.chaos.events import during, event, let_pass, play
from tests.system.chaos.outages import get_going
from tests.system.chaos.provider import LATENCY_MS
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import CAP, SETTINGS, Stage
from tests.system.chaos.verdict import Found, judge, settle

_SHIPPED = {
    name: str(Settings.model_fields[name.lower()].default)
    for name in SETTINGS
    if name.endswith("_MS") and not name.startswith("SMTP_")
}
_PATIENT = {**_SHIPPED, "QUEUE_SHUTDOWN_DRAIN_MS": "105000", "PLATFORM_GRACE_MS": "120000"}
_CODES = "SELECT array_agg(DISTINCT code ORDER BY code) FROM attempt WHERE send_id = ANY (%s) AND became = 'unsure'"


#: Recipients of a send, at least: fewer would go by the single lane, whose workers are not those that are stopped.
_BULK = 26


def _with_calls(stage: Stage) -> str:
    """A bulk worker that has calls in flight."""

    def busiest() -> str | None:
        member = stage.fleet.busiest(among="worker_bulk")
        return member if stage.fleet.in_flight(member) else None

    member = wait_until(busiest, timeout=60, what="calls in flight")
    assert member is not None
    return member


@scenario(nightly=True, settings=_SHIPPED)
def drains(stage: Stage, size: Size) -> Found:
    """
    A worker with calls of 6 s in flight is told to end: its main process, its group, its group twice.

    Guard: every call in flight ends and is recorded before its process does, whichever thread it is in.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=6_000)
    stage.submit(*[size.pick(short=30, full=50)] * 4)
    for signals in ("main", "group", "twice"):
        play(stage, [event(0.0, "drain", member=_with_calls(stage), signals=signals)])
    stage.provider.usually(latency_ms=LATENCY_MS)
    settle(stage, within_s=180)
    return judge(stage, since=since, in_doubt=0, attempts=1)


@scenario(nightly=True, settings=_SHIPPED)
def longer_than_the_grace(stage: Stage, size: Size) -> Found:
    """
    A worker with calls of a minute in flight is told to end: they are cut after 23 s, and it ends with 0 after 25.

    Guard: it is the drain that cuts them and writes them down, not somebody who finds a dead worker's rows.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=60_000)
    stage.submit(*[size.pick(short=_BULK, full=30)] * 4)
    play(stage, [event(0.5, "drain", member=_with_calls(stage))])
    stage.provider.usually(latency_ms=LATENCY_MS)
    settle(stage, within_s=240)
    with stage.ledger.autocommit() as connection:
        row = connection.execute(_CODES, [[send.id for send in stage.sends]]).fetchone()
    assert row == (["call_cut"],), row
    return judge(stage, since=since, in_doubt=CAP)


@scenario(nightly=True, settings=_PATIENT)
def killed_in_its_drain(stage: Stage, size: Size) -> Found:
    """
    A worker with calls of 45 s in flight is told to end, and killed 30 s later: its drain would have been longer.

    QUEUE_SHUTDOWN_DRAIN_MS 105000 on a platform that kills after 30 s. Guard: what a dead worker had in a call is
    proved, never sent again.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=size.pick(short=20_000, full=45_000))
    stage.submit(*[size.pick(short=_BULK, full=30)] * 4)
    member = _with_calls(stage)
    play(stage, [event(0.5, "term", member=member), event(size.pick(short=8, full=30), "kill", member=member)])
    stage.provider.usually(latency_ms=LATENCY_MS)
    settle(stage, within_s=240)
    in_flight = sum(death.in_flight for death in stage.fleet.deaths)
    assert in_flight > 0, "its calls had ended before the kill"
    return judge(stage, since=since, in_doubt=in_flight)


@scenario(nightly=True, settings=_SHIPPED)
def frozen(stage: Stage, size: Size) -> Found:
    """
    A bulk worker is stopped (SIGSTOP) for 90 s, longer than its lease and its heartbeat, then goes on.

    25 s in the short form. LEASE_MS 15000, WORKER_HEARTBEAT_TIMEOUT_MS 20000. Guard: the lease is looked at last before
    the call, and every write is fenced by the claim id.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=1_000)
    stage.submit(size.pick(short=600, full=2_000))
    get_going(stage, accepted=50)
    play(stage, during(0.0, size.pick(short=25, full=90), "freeze", member=_with_calls(stage)))
    let_pass(stage, 3.0)
    stage.provider.usually(latency_ms=LATENCY_MS)
    settle(stage, within_s=240)
    return judge(stage, since=since)
