"""The faults of Redis: emptied, gone, hanging, full, read-only; acceptance without it; an acknowledgement lost."""

import time

from tests.support.waiting import wait_until
from tests.system.chaos.events import during, event, let_pass, play
from tests.system.chaos.outages import get_going, wait_for_calls
from tests.system.chaos.provider import LATENCY_MS
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import CAP, Stage
from tests.system.chaos.verdict import Found, judge, settle

#: calls in flight over the cap while each process goes by its own share, and while leases are not known again: one
#: window per process at most
_LOOSE_CAP = 3 * CAP


@scenario()
def flushes(stage: Stage, size: Size) -> Found:
    """
    FLUSHALL every 3 s: circuits, slots, queues, messages and heartbeats are gone each time.

    The messages of ten single sends certainly are: their worker is frozen until after the last one. Guard: due work
    compares the chains of the ledger with the messages of Redis.
    """
    since = time.monotonic()
    stage.submit(size.pick(short=2_500, full=20_000))
    get_going(stage, accepted=100)
    play(stage, [event(3.0 * n, "flush") for n in range(size.pick(short=2, full=20))])
    stage.fleet.freeze("worker_send")
    stage.submit(*[1] * 10)
    wait_until(lambda: stage.stores.queued("email") > 0, timeout=30, what="messages of single sends")
    play(stage, [event(1.0, "flush"), event(1.0, "thaw")])
    settle(stage, within_s=size.pick(short=180, full=600))
    return judge(stage, since=since, in_doubt=0)


def _goes_on(stage: Stage, size: Size, what: str, *, seconds: int, **arguments: bool) -> Found:
    """A fault of Redis in the middle of a send, which goes on meanwhile."""
    since = time.monotonic()
    stage.provider.usually(latency_ms=150)
    stage.submit(size.pick(short=1_000, full=5_000))
    get_going(stage, accepted=100)
    wait_for_calls(stage)  # so that a chain is at work: those that wait in Redis are gone with it
    begin, end = during(0.0, seconds, what, **arguments)
    play(stage, [begin])
    let_pass(stage, 4.0)
    before = stage.accepted()
    let_pass(stage, seconds - 4.0)
    moved = stage.accepted() - before
    play(stage, [event(0.0, end.what)])
    stage.provider.usually(latency_ms=LATENCY_MS)
    settle(stage, within_s=180)
    assert moved > 0, "nothing was sent while Redis was away"
    peak = stage.provider.counts().number("peak")
    assert peak <= _LOOSE_CAP, peak
    return judge(stage, since=since, in_doubt=0)


@scenario()
def redis_stopped(stage: Stage, size: Size) -> Found:
    """Redis is stopped for 20 s (8 in the short form) and comes back empty; each process goes on with its share."""
    return _goes_on(stage, size, "redis_stop", seconds=size.pick(short=8, full=20), forget=True)


@scenario(nightly=True)
def redis_full(stage: Stage, size: Size) -> Found:
    """Redis is out of memory for 10 s (7 in the short form): it refuses every command that writes."""
    return _goes_on(stage, size, "redis_fill", seconds=size.pick(short=7, full=10))


@scenario(nightly=True)
def redis_read_only(stage: Stage, size: Size) -> Found:
    """Redis is a read-only replica for 10 s (7 in the short form), as in a failover."""
    return _goes_on(stage, size, "redis_demote", seconds=size.pick(short=7, full=10))


def _wait_for_a_single_send(stage: Stage) -> None:
    """Until one is over: its worker asks for messages again."""
    [send] = stage.submit(1)
    wait_until(lambda: stage.call("GET", f"/sends/{send.id}")[1]["status"] == "completed", timeout=60)


@scenario()
def lost_acks(stage: Stage, size: Size) -> Found:
    """
    Redis hangs for longer than the broker's socket time-out of 3 s; what it was told meanwhile it does late.

    Acknowledgements are done and not confirmed, messages are handed out to connections that are gone: those of ten
    single sends, twice. Guards: a time-out is a lost connection to the consumer, what was handed out and not
    received is taken back, a stale token ends a chain.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=100)
    stage.submit(size.pick(short=1_000, full=5_000))
    get_going(stage, accepted=100)
    play(
        stage, [event(8.0 * n, "redis_hang", seconds=4 if n % 2 == 0 else 7) for n in range(size.pick(short=1, full=4))]
    )
    for _ in range(2):  # about one in three strikes nothing
        _wait_for_a_single_send(stage)
        stage.fleet.freeze("worker_send")
        stage.submit(*[1] * 10)
        wait_until(lambda: stage.stores.queued("email") >= 10, timeout=30, what="messages of single sends")
        play(stage, [event(0.0, "redis_freeze"), event(0.2, "thaw"), event(5.0, "redis_thaw")])
    settle(stage, within_s=180)
    return judge(stage, since=since, in_doubt=0)


@scenario()
def accepted_without_redis(stage: Stage, size: Size) -> Found:
    """
    Sends come in while Redis is stopped: each is answered 202, and found afterwards.

    DELIVERY_RECONCILE_PENDING_STALE_MS 1000. Guards: acceptance does not need the queue; the finder of pending sends.
    """
    since = time.monotonic()
    stage.stores.stop_redis(forget=True)
    stage.submit(1, 1, 100, size.pick(short=200, full=2_000))
    took_s = time.monotonic() - since
    assert stage.accepted() == 0
    stage.stores.start_redis()
    settle(stage, within_s=120)
    assert took_s < 20, took_s
    return judge(stage, since=since, in_doubt=0)
