"""Retention ends the memory of what was told, and nothing that a channel still looks at is told a second time."""

import pytest

from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import LOOPBACK, age, finding, make_channel, post, put, statuses
from tests.support.scripted_http import answer, scripted_http
from workers.actors.digest import Dispatch
from workers.actors.retention import run_retention


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK, notification_retention_days=30)


def tell(worker: InProcess) -> None:
    Dispatch(worker.runtime, worker.jobs).run()


def clean(worker: InProcess) -> None:
    run_retention(worker.runtime, every_s=0.0)


def test_what_was_told_of_one_finding_is_known_of_another_with_its_dedup_key(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always("/ok", answer(200))
        make_channel(ledger, server.url + "/ok")
        put(ledger, finding("first", dedup_key="both"))
        post(ledger, "also an event")
        tell(worker)
        put(ledger, finding("second", dedup_key="both"), finding("third", dedup_key="also an event"))
        put(ledger, finding("first", dedup_key="both", active=False))
        age(ledger, "31 days")
        clean(worker)
        tell(worker)
        assert statuses(ledger) == {"both": "sent", "also an event": "sent"}
        put(ledger, finding("second", dedup_key="both", active=False))
        clean(worker)
        assert statuses(ledger) == {"also an event": "sent"}


def test_a_channel_that_was_off_for_longer_than_it_keeps_tells_nothing_again_and_loses_nothing(
    ledger: Ledger, worker: InProcess
) -> None:
    with scripted_http() as server:
        server.always("/ok", answer(200))
        make_channel(ledger, server.url + "/ok", retention_days=7)
        post(ledger, "told")
        tell(worker)
        post(ledger, "came while it was off")
        age(ledger, "8 days")
        with ledger.transaction() as connection:
            connection.execute("UPDATE event SET received_at = received_at - interval '8 days'")
            connection.execute("UPDATE digest_channel SET detected_at = detected_at - interval '8 days'")
        clean(worker)
        assert statuses(ledger) == {}
        tell(worker)
    assert statuses(ledger) == {"came while it was off": "sent"}
