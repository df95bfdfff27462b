"""Requeue, discard and restore of what its provider reports meanwhile: what it took is asked for by name alone."""

import threading

import pytest

from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.ledger import receipts
from shared.ledger.db import Ledger
from tests.support.factories import counts
from tests.support.failing import make_failures
from tests.support.ledger_rows import delivery, scalar, wait_for_a_lock
from tests.support.requeuing import chunk, finish, of, operation, plan, preview

pytestmark = pytest.mark.usefixtures("balanced")


@pytest.mark.parametrize("status", ["failed", "dead_lettered"])
def test_what_a_late_receipt_says_was_taken_is_requeued_only_by_its_id_and_with_possible_duplicates_accepted(
    ledger: Ledger, status: str
) -> None:
    send = make_failures(ledger, status=status, count=3)
    reported(ledger, 1, "delivered")
    reported(ledger, 2, "undelivered")
    named = FailureFilter(ids=((send.id, 1),))
    for asked, accepts, total in ((of(send), False, 2), (of(send), True, 2), (named, False, 0)):
        seen = preview(ledger, asked, accepts_duplicates=accepts)
        assert (seen.total, seen.left_out) == (total, {LeftOut.REPORTED: 1})
    plan(ledger, of(send))
    finish(ledger)
    assert counts(ledger, send.id) == {status: 1, "owed": 2}
    plan(ledger, named, accepts_duplicates=True)
    finish(ledger)
    assert counts(ledger, send.id) == {"owed": 3}
    assert delivery(ledger, send.id)["receipt_status"] is None


@pytest.mark.parametrize("accepts", [False, True])
def test_what_was_reported_as_taken_by_the_time_of_its_chunk_is_skipped_unless_it_is_named(
    ledger: Ledger, *, accepts: bool
) -> None:
    send = make_failures(ledger, count=3)
    made = plan(ledger, of(send), accepts_duplicates=accepts)
    reported(ledger, 1, "sent")
    finish(ledger)
    assert (operation(ledger, made.id).skipped, counts(ledger, send.id)) == (1, {"dead_lettered": 1, "owed": 2})
    assert scalar(ledger, "SELECT why FROM operation_item WHERE result = 'skipped'") == "reported"


def test_what_was_named_and_then_reported_as_taken_is_requeued_where_a_duplicate_is_accepted(ledger: Ledger) -> None:
    send = make_failures(ledger)
    plan(ledger, FailureFilter(ids=((send.id, 1),)), accepts_duplicates=True)
    reported(ledger, 1, "sent")
    finish(ledger)
    assert counts(ledger, send.id) == {"owed": 1}


@pytest.mark.parametrize("kind", OperationKind)
def test_what_is_reported_as_not_delivered_at_this_moment_is_not_skipped(ledger: Ledger, kind: OperationKind) -> None:
    send = make_failures(ledger, count=3)
    if kind is OperationKind.RESTORE:
        plan(ledger, of(send), kind=OperationKind.DISCARD)
        finish(ledger)
    made = plan(ledger, of(send), kind=kind)
    done: list[int | None] = []

    def work() -> None:
        with ledger.transaction() as own:
            done.append(chunk(own))

    with ledger.transaction() as connection:
        reported = receipts.keep(
            connection,
            receipts.ReportedDelivery(send.id, 2, 0),
            provider="twilio",
            ref="SM1",
            status="undelivered",
            code=None,
        )
        assert reported is not None
        connection.execute("UPDATE delivery SET provider = 'twilio', last_attempt_at = now() WHERE row_no = 2")
        assert receipts.apply(connection, reported)
        other = threading.Thread(target=work)
        other.start()
        wait_for_a_lock(ledger)
    other.join(timeout=20)
    assert (done, operation(ledger, made.id).done, operation(ledger, made.id).skipped) == ([3], 3, 0)


def reported(ledger: Ledger, row_no: int, status: str) -> None:
    """A provider's report of a row's call, applied."""
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE delivery SET provider = 'twilio', last_attempt_at = now() WHERE row_no = %s", [row_no]
        )
        found = connection.execute("SELECT send_id FROM delivery WHERE row_no = %s", [row_no]).fetchone()
        assert found is not None
        one_of = receipts.find_delivery(connection, send_id=found[0], row_no=row_no)
        assert one_of is not None
        receipt = receipts.keep(connection, one_of, provider="twilio", ref=f"SM{row_no}", status=status, code=None)
        assert receipt is not None
        assert receipts.apply(connection, receipt)
