"""The clock of the web process is an hour wrong: what can be undone is counted down by the ledger's."""

import re
from datetime import UTC, datetime

import pytest

from shared.domain.requeue import FailureFilter
from shared.domain.states import SendStatus
from shared.ledger import cancelling
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.factories import make_send
from tests.support.failing import make_failures
from tests.support.ledger_clock import LedgerClock
from tests.support.requeuing import plan

UNDO_S = 600
#: Seconds left at most: as a page counts them that was long about it.
MOST_LEFT_S = UNDO_S + 60


@pytest.mark.parametrize("off_by", ["-1 hour", "1 hour"])
def test_an_operation_that_can_be_undone_is_counted_down_and_waits_for_no_worker(
    make_app: MakeApp, ledger: Ledger, database_url: str, off_by: str
) -> None:
    LedgerClock(database_url, off_by=off_by)
    make_failures(ledger, count=3)
    operation = plan(ledger, FailureFilter(), undo_s=UNDO_S)
    page = Browser(make_app()).get(f"/admin/monitoring/operations/{operation.id}")
    said = text_of(page)
    left = re.search(r"Requeueing 3 in (\d+) s ", said)
    assert left is not None, said
    assert 0 < int(left[1]) <= MOST_LEFT_S
    assert "no worker" not in said
    counted = re.search(r'datetime="([^"]+)"[^>]* data-countdown', page.text)  # on in the browser, by the page's clock
    assert counted is not None
    assert 0 < (datetime.fromisoformat(counted[1]) - datetime.now(UTC)).total_seconds() <= MOST_LEFT_S


def test_a_cancel_is_counted_down_in_seconds(make_app: MakeApp, ledger: Ledger, database_url: str) -> None:
    LedgerClock(database_url, off_by="1 hour")
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        assert cancelling.begin(connection, send.id, operator="kim", reason="the wrong list")
    said = text_of(Browser(make_app()).get(f"/admin/monitoring/sends/{send.id}"))
    assert re.search(r"Cancelled for good (in \d\d? s|at any moment) Undo", said), said
