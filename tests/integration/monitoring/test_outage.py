"""An outage from its beginning to its end, as the first sentence of every page tells it."""

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from admin.extensions import installed
from admin.monitoring.snapshot import build
from shared.domain.states import Channel, Mode, SendStatus
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.integration.workers.ches import refused, serve
from tests.integration.workers.conftest import ches_settings
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.factories import counts, make_send
from tests.support.scripted_http import ScriptedHttp, scripted_http
from tests.support.waiting import wait_until
from workers.actors.senders import senders_of


@pytest.fixture
def ches() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        yield server


@pytest.fixture
def worker(ches: ScriptedHttp, database_url: str, redis_url: str) -> Iterator[InProcess]:
    settings = {**ches_settings(ches), "circuit_reset_ms": 1_000, "retry_base_delay_ms": 1}
    with InProcess(make_settings(database_url, redis_url, **settings)) as worker:
        yield worker


@pytest.fixture
def app(make_app: MakeApp, redis_url: str, ches: ScriptedHttp) -> Flask:
    return make_app(redis_url=redis_url, **ches_settings(ches))


def test_an_outage_is_told_with_what_waits_and_that_nothing_fails_and_then_it_is_over(
    ledger: Ledger, worker: InProcess, app: Flask, ches: ScriptedHttp
) -> None:
    def said() -> Any:
        return build(installed(app), None)["verdict"]

    def age(minutes: int) -> None:
        """The circuit's opening, so many minutes earlier."""
        client: Any = worker.runtime.link._client
        (key,) = client.keys("tidings:{ches:*}:circuit")
        client.hset(key, "open_since", int(client.hget(key, "open_since")) - minutes * 60_000)

    def probes_failed() -> int:
        worker.tick()
        worker.work_off()
        guards = senders_of(worker.runtime).sender(Channel.EMAIL, Mode.LIVE).guards
        return guards.circuit.snapshot().reopened

    assert said()["text"] == "Sending normally."
    serve(ches, otherwise=refused(503))
    send = make_send(ledger, count=60, status=SendStatus.SENDING)
    worker.run(send)

    verdict = said()
    assert verdict["text"].startswith("E-mail provider ches circuit open for ")
    assert verdict["text"].endswith(" e-mails are waiting, none are failing.")
    assert verdict["severity"] == "warning"
    age(9)
    assert "circuit open for 9 min" in said()["text"]
    age(2)
    assert said()["severity"] == "critical"
    wait_until(lambda: probes_failed() > 0, timeout=30, what="a probe that fails")
    assert "circuit open for 11 min" in said()["text"]
    assert counts(ledger, send.id).keys() <= {"owed", "retrying"}

    serve(ches)

    def is_over() -> bool:
        worker.tick()
        worker.work_off()
        return counts(ledger, send.id) == {"sent": 60}

    wait_until(is_over, timeout=30, what="all of it sent")
    assert said() == {"text": "Sending normally.", "severity": "ok", "since": None}
