"""What stands before a provider in one process: shared by its actors, closed at its end, careful without Redis."""

from bisect import bisect_right
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from shared.coordination.guard import Entered
from shared.coordination.heartbeat import Heartbeat, Identity
from shared.domain.pace import BOUNDS_S
from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.ledger.db import Ledger
from tests.integration.providers.messages import email_message
from tests.integration.workers.conftest import ches_settings
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.factories import counts, make_send
from tests.support.scripted_http import ScriptedHttp
from workers.actors.senders import Senders, senders_of, sending_processes
from workers.middleware.runtime import Runtime

FLEET = "web=2 worker_ingest=1 worker_send=2 worker_bulk=3 worker_ops=2 clock=1"


@pytest.fixture
def alone(database_url: str, provider: ScriptedHttp) -> Iterator[Runtime]:
    """A process of a fleet of five that send, started while Redis is away."""
    settings = {**ches_settings(provider), "ches_max_concurrent_requests": 20, "fleet": FLEET}
    runtime = Runtime(make_settings(database_url, "redis://127.0.0.1:1", **settings), process="test")
    yield runtime
    for close in runtime.at_end:
        close()
    runtime.link.close()


def share(senders: Senders) -> int:
    guards = senders.sender(Channel.EMAIL, Mode.LIVE).guards
    entered = guards.enter(Lane.BULK, 100)
    assert isinstance(entered, Entered)
    guards.leave(entered)
    return entered.slots


def test_a_process_that_starts_without_redis_takes_its_share_of_the_cap_by_the_configured_fleet(
    alone: Runtime,
) -> None:
    assert share(Senders(alone)) == 20 // 5


def test_a_fleet_that_names_no_sender_is_this_process(database_url: str, redis_url: str) -> None:
    assert sending_processes(make_settings(database_url, redis_url, fleet="web=1")) == 1


def test_processes_that_beat_count_and_those_that_crashed_do_not(ches: InProcess) -> None:
    beats = [
        Heartbeat(ches.runtime.link, Identity(id=f"w{n}", name=f"w{n}", kind="worker", version="1", queues=("email",)))
        for n in range(6)
    ]
    for beat in beats:
        beat.beat()
    ches.runtime.link.pipeline([("ZINCRBY", "tidings:workers", -60_000, f"w{n}") for n in range(2)])
    senders = Senders(ches.runtime)
    sender = senders.sender(Channel.EMAIL, Mode.LIVE)
    senders._tell_and_ask()
    assert sender.guards._workers == 4


def test_how_long_windows_wait_for_slots_is_told_with_the_beats(ledger: Ledger, ches: InProcess) -> None:
    senders = senders_of(ches.runtime)
    guards = senders.sender(Channel.EMAIL, Mode.LIVE).guards
    ches.run(make_send(ledger, count=60, status=SendStatus.SENDING))
    senders._tell_and_ask()
    assert set(guards.waits.read()) == {1}

    everything = guards.enter(Lane.SINGLE, 50)
    assert isinstance(everything, Entered)
    assert everything.slots == 50
    late = make_send(ledger, count=1, status=SendStatus.SENDING)
    ches.run(late)
    guards.leave(everything)
    senders._tell_and_ask()
    assert counts(ledger, late.id) == {"owed": 1}
    assert max(guards.waits.read()) == bisect_right(BOUNDS_S, 2.0) + 1


def test_actors_of_a_process_share_their_senders(alone: Runtime) -> None:
    assert senders_of(alone) is senders_of(alone)


def test_the_adapters_of_threads_that_ended_are_closed_and_one_in_a_call_is_left_alone(ches: InProcess) -> None:
    senders = Senders(ches.runtime)
    made: dict[str, Any] = {}
    go_on = Event()

    def send(name: str, wait: float) -> None:
        adapter = senders.sender(Channel.EMAIL, Mode.LIVE).provider
        assert [answer for answer in adapter.send([email_message()]) if answer is not None]
        made[name] = adapter
        go_on.wait(wait)

    ended, busy = Thread(target=send, args=("ended", 0)), Thread(target=send, args=("busy", 20))
    for thread in (ended, busy):
        thread.start()
    ended.join(20)
    while "busy" not in made:
        busy.join(0.05)
    senders._close()
    assert (len(made["ended"]._engine._idle), len(made["busy"]._engine._idle)) == (0, 1)
    go_on.set()
    busy.join(20)
    senders._close()
    assert len(made["busy"]._engine._idle) == 0
