"""Workers whose clock is not the ledger's: what is counted from the ledger's times is counted by its clock."""

import pytest

from shared.domain.states import SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.ches import refused, serve
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.test_proving import GONE, age, found
from tests.support.factories import counts, make_send
from tests.support.ledger_clock import LedgerClock
from tests.support.ledger_rows import delivery, scalar
from tests.support.scripted_http import ScriptedHttp

SENDING = SendStatus.SENDING


def test_a_worker_ahead_of_the_ledger_believes_no_absence_before_its_time(
    ledger: Ledger, database_url: str, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    LedgerClock(database_url, off_by="-1 hour")
    ches = make_worker(**ches_settings(provider))
    serve(provider, {"person0": GONE})
    send = make_send(ledger, status=SENDING, age="2 hours")
    ches.run(send)
    found(provider)
    for passed in ("30 seconds", "90 seconds"):
        age(ledger, passed)
        ches.prove()
        assert counts(ledger, send.id) == {"unsure": 1}
    assert delivery(ledger, send.id)["prove_count"] == 2
    age(ledger, "480 seconds")
    ches.prove()
    assert counts(ledger, send.id) == {"owed": 1}


@pytest.mark.parametrize("off_by", ["1 hour", "-1 hour"])
def test_a_backoff_is_as_long_as_it_is_whichever_clock_is_wrong(
    ledger: Ledger, database_url: str, make_worker: MakeWorker, provider: ScriptedHttp, off_by: str
) -> None:
    LedgerClock(database_url, off_by=off_by)
    worker = make_worker(**ches_settings(provider), retry_jitter_percent=0)
    serve(provider, otherwise=refused(503))
    send = make_send(ledger, status=SENDING, age="2 hours")
    worker.run(send)
    waits_s = scalar(ledger, "SELECT extract(epoch FROM next_attempt_at - last_attempt_at)::float8 FROM delivery")
    assert waits_s == pytest.approx(300, abs=30)
    took_s = scalar(ledger, "SELECT extract(epoch FROM ended_at - started_at)::float8 FROM attempt")
    assert 0 <= took_s < 30
