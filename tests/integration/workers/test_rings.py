"""What changes in a worker is heard by the pages, and costs the sending nothing but a note in memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from shared.coordination import keys
from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.ches import refused, serve
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import make_send
from tests.support.scripted_http import ScriptedHttp
from tests.support.waiting import wait_until


class _Heard(set[str]):
    """Panels of which somebody rang."""

    def __init__(self, subscription: Any) -> None:
        super().__init__()
        self._subscription = subscription

    def hears(self, worker: InProcess, *wanted: str) -> bool:
        worker.runtime.doorbell.flush()
        message = self._subscription.get_message(ignore_subscribe_messages=True, timeout=0.1)
        if message:
            self.update(str(message["data"]).split())
        return set(wanted) <= self


@pytest.fixture
def heard(redis_url: str) -> Iterator[_Heard]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client, client.pubsub() as subscription:
        subscription.subscribe(keys.DOORBELL_CHANNEL.name("tidings"))
        yield _Heard(subscription)


def test_settled_deliveries_ring_for_what_shows_them(ledger: Ledger, worker: InProcess, heard: _Heard) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    worker.run(send)
    wait_until(lambda: heard.hears(worker, "channels", "sends", "last_hour", "queues"), what="a ring")
    assert "failures" not in heard


def test_failures_and_a_circuit_that_opens_ring(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, heard: _Heard
) -> None:
    serve(provider, otherwise=refused(503))
    send = make_send(ledger, count=10, status=SendStatus.SENDING)
    ches.run(send)
    wait_until(lambda: heard.hears(ches, "failures", "providers"), what="rings")


def test_a_pass_rings(worker: InProcess, heard: _Heard) -> None:
    worker.reconcile()
    wait_until(lambda: heard.hears(worker, "recovery"), what="a ring of the pass")


def test_the_figures_of_a_queue_are_kept_for_as_many_minutes_as_the_environment_says(
    ledger: Ledger, make_worker: MakeWorker, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_METRICS_MAX_DATA_POINTS", "10")
    worker = make_worker()
    worker.run(make_send(ledger, status=SendStatus.SENDING))
    worker.runtime.minutes.flush()
    with redis.Redis.from_url(redis_url) as client:
        assert 0 < client.ttl(keys.MINUTES.name("tidings", queue="email_bulk")) <= 600
