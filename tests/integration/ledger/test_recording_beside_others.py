"""Recording while others touch the same rows, and whatever a provider may call things."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import make_send
from tests.support.ledger_rows import delivery, scalar
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("balanced")
D = DeliveryStatus
_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_a_receipt_that_comes_while_an_outcome_is_recorded_does_not_make_it_late(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    with ThreadPoolExecutor(1) as pool:
        with ledger.transaction() as connection:
            connection.execute(
                "UPDATE delivery SET receipt_status = 'delivered' WHERE send_id = %s AND row_no = 2", [send.id]
            )
            recording = pool.submit(hand.record, claim, *[ended(row, D.SENT) for row in rows])
            wait_until(lambda: scalar(ledger, _WAITS) == 1, what="the recording to meet the receipt")
        assert recording.result(timeout=10) == []
    after = delivery(ledger, send.id, 2)
    assert (after["status"], after["receipt_status"], after["attempt_count"]) == ("sent", "delivered", 1)
    hand.release(send)


def test_a_reference_is_kept_as_the_provider_gave_it(ledger: Ledger, hand: Hand) -> None:
    given = [
        "",
        "NULL",
        "null",
        "{a,b}",
        'a"b',
        "a\\b",
        "\\",
        '"',
        "a, b",
        " spaced ",
        "tab\tline\nend",
        "é✓😀",
        "'; --",
    ]
    send = make_send(ledger, count=len(given), status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    hand.record(claim, *[ended(row, D.FAILED, ref=ref or " ") for row, ref in zip(rows, given, strict=True)])
    kept = [delivery(ledger, send.id, row.row_no)["provider_ref"] for row in rows]
    assert kept == [ref or " " for ref in given]
    hand.release(send)
