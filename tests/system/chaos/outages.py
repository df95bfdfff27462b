"""The provider's faults: down, refusing, throttling, hanging, dripping, taking without an answer."""

import time

from tests.support.waiting import wait_until
from tests.system.chaos.events import during, event, play, roll
from tests.system.chaos.scenario import Size, scenario
from tests.system.chaos.stage import CAP, Stage
from tests.system.chaos.verdict import Found, judge, settle

#: As CIRCUIT_FAILURES.
_FAILURES = 5
_GOING_S = 60.0
#: calls under way when a fault strikes that only they can show
_IN_THE_AIR = 4


def get_going(stage: Stage, *, accepted: int) -> None:
    """Wait until the provider has accepted so many."""
    wait_until(lambda: stage.accepted() >= accepted, timeout=_GOING_S, what=f"{accepted} accepted messages")


def wait_for_calls(stage: Stage) -> None:
    """Wait until calls are in the air: their claims were committed a moment ago, and their answers are to come."""
    wait_until(lambda: stage.provider.counts().number("in_flight") >= _IN_THE_AIR, timeout=_GOING_S, what="calls")


@scenario()
def outage(stage: Stage, size: Size) -> Found:
    """
    The provider refuses connections for 11 s in the middle of a send of 2,000 (5 s, 1,000).

    What was in flight when it went down is looked up. Guards: a lost answer is no refusal; waiting uses up no attempts.
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=300)
    stage.submit(size.pick(short=1_000, full=2_000))
    get_going(stage, accepted=100)
    wait_for_calls(stage)
    play(stage, during(0.0, size.pick(short=5, full=11), "provider", listening=False))
    settle(stage, within_s=120)
    return judge(stage, since=since, in_doubt=CAP, attempts=3)


@scenario(nightly=True)
def refusals(stage: Stage, size: Size) -> Found:
    """
    The provider answers 503 for 11 s in the middle of a send of 2,000.

    It is asked by the calls in flight, the failures that open the circuit, and one probe for each reset after that.
    """
    since = time.monotonic()
    stage.submit(2_000)
    get_going(stage, accepted=100)
    play(stage, during(0.5, 11.5, "provider", faults=[{"kind": "status", "status": 503}]))
    settle(stage, within_s=120)
    probes = 11 // 2 + 1
    assert stage.did("refused") <= _FAILURES + CAP + probes, stage.did("refused")
    return judge(stage, since=since, in_doubt=0, attempts=3)


@scenario(settings={"CIRCUIT_RESET_MS": "8000", "CHES_MAX_CONCURRENT_REQUESTS": "5"})
def sixty_sends(stage: Stage, size: Size) -> Found:
    """
    60 sends of one recipient come while the provider answers 503 for 5 s: it is hit 5 times, and by those in flight.

    CIRCUIT_RESET_MS 8000: no probe within the outage. CHES_MAX_CONCURRENT_REQUESTS 5, as CHES has it.
    """
    since = time.monotonic()
    stage.provider.behave(faults=[{"kind": "status", "status": 503}])
    stage.submit(*[1] * 60)
    wait_until(lambda: stage.did("refused") > 0, timeout=_GOING_S, what="the first refusal")
    play(stage, [event(5.0, "provider")])
    settle(stage, within_s=120)
    assert _FAILURES <= stage.did("refused") <= _FAILURES + 5, stage.did("refused")
    return judge(stage, since=since, in_doubt=0, attempts=2)


@scenario()
def cut_lines(stage: Stage, size: Size) -> Found:
    """
    The provider takes every tenth message and cuts the line; CHES can be asked afterwards: none stays unsure.

    The look-up itself is down at first. Guard: what may have been taken is never sent again.
    """
    since = time.monotonic()
    stage.provider.behave(faults=[{"kind": "cut", "share": 0.1}], lookup="down")
    stage.submit(size.pick(short=200, full=2_000))
    get_going(stage, accepted=50)
    play(stage, [event(size.pick(short=3, full=10), "provider", faults=[{"kind": "cut", "share": 0.1}])])
    settle(stage, within_s=240)
    assert stage.did("cut") > 0
    found = judge(stage, since=since, in_doubt=stage.did("cut"))
    assert found.unsure_ever == stage.did("cut"), (found, stage.did("cut"))
    return found


@scenario(provider="smtp")
def cut_lines_without_look_up(stage: Stage, size: Size) -> Found:
    """
    An SMTP relay takes every tenth message and cuts the line: nobody can be asked, so each is parked for a person.
    """
    since = time.monotonic()
    stage.provider.behave(cut=0.1)
    stage.submit(size.pick(short=300, full=2_000))
    settle(stage, within_s=240)
    cut = stage.did("cut")
    assert cut > 0
    return judge(stage, since=since, unsure=cut, in_doubt=cut)


@scenario()
def storms(stage: Stage, size: Size) -> Found:
    """
    429 with Retry-After for everybody, bursts of 503, hanging calls, answers that drip: nothing fails, nothing is lost.

    Guards: the gate (few calls reach a provider that throttles), the circuit, look-ups after a time-out
    (CHES_TIMEOUT_MS 3000; a dripping answer was accepted, a hanging call was not).
    """
    since = time.monotonic()
    stage.provider.usually(latency_ms=100)
    stage.submit(size.pick(short=1_000, full=5_000))
    get_going(stage, accepted=100)
    throttle = {"kind": "status", "status": 429, "headers": {"Retry-After": "2"}}
    play(
        stage,
        [
            *during(0.2, 3.2, "provider", faults=[throttle]),
            *during(4.5, 5.5, "provider", faults=[{"kind": "status", "status": 503, "share": 0.5}]),
            *during(8.0, 8.5, "provider", faults=[{"kind": "hang", "share": 0.2}]),
            *during(12.0, 13.0, "provider", faults=[{"kind": "drip", "share": 0.2, "every_ms": 100}]),
        ],
    )
    settle(stage, within_s=240)
    throttled_and_refused = stage.did("refused")
    assert throttled_and_refused <= 2 * CAP + _FAILURES + CAP, throttled_and_refused
    doubtful = stage.did("hung") + stage.did("dripped")
    return judge(stage, since=since, in_doubt=doubtful, attempts=3)


@scenario()
def deploys(stage: Stage, size: Size) -> Found:
    """
    The whole fleet is drained and started again, five times over, most of it while the provider refuses everything.

    Guards: a second SIGTERM is no reason to stop at once (every drain ends with 0), and waiting, probes and drains use
    up no attempts.
    """
    since = time.monotonic()
    rounds = size.pick(short=1, full=5)
    stage.submit(size.pick(short=1_500, full=3_000))
    get_going(stage, accepted=100)
    deploys = [each for n in range(rounds) for each in roll(0.5 + 10 * n, every_s=1.2)]
    play(stage, [*deploys, *during(0.2, 10.0 * rounds, "provider", faults=[{"kind": "status", "status": 503}])])
    settle(stage, within_s=180)
    return judge(stage, since=since, in_doubt=0, attempts=3)
