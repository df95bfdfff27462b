"""A ledger that may only be read for a while is as good as away: nothing known is lost, and all goes on after it."""

from contextlib import ExitStack
from threading import Thread

import pytest

from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.ches import calls, serve, taken
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.support.factories import counts, make_send
from tests.support.read_only import read_only
from tests.support.scripted_http import Pause, Received, ScriptedHttp, Step
from tests.support.waiting import wait_until


def test_a_process_holds_again_once_its_lease_can_be_written(make_worker: MakeWorker, database_url: str) -> None:
    lease = make_worker(lease_ms=2_000, lease_renew_ms=500).runtime.lease
    with read_only(database_url):
        wait_until(lambda: not lease.holds(lease.worker))
    wait_until(lambda: lease.holds(lease.worker))


def test_what_a_call_came_to_is_recorded_once_it_can_be_written(
    ledger: Ledger,
    make_worker: MakeWorker,
    provider: ScriptedHttp,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = make_worker(**ches_settings(provider))
    send = make_send(ledger, count=2, status=SendStatus.SENDING)
    with ExitStack() as maintenance:

        def first(request: Received) -> Step:
            maintenance.enter_context(read_only(database_url))
            return taken(request)

        def second(request: Received) -> Step:
            return [Pause(1.0), *taken(request)]

        serve(provider, {"person0": first, "person1": second})
        working = Thread(target=worker.run, args=[send])
        working.start()
        wait_until(lambda: "outcomes_wait_for_postgres" in caplog.messages)
    working.join()
    assert counts(ledger, send.id) == {"sent": 2}
    assert set(calls(provider).values()) == {1}
