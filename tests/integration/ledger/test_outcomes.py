"""What a call's result makes of a row, and whose results count: the fence is the claim id."""

from dataclasses import replace
from uuid import UUID

import pytest

from shared.domain.states import Channel, DeliveryStatus, SendStatus
from shared.ledger import batches, chains, deliveries
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import SAYS, Hand, ended
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import attempts, batch, delivery, one, put_rows, scalar

pytestmark = pytest.mark.usefixtures("balanced")
SENDING = SendStatus.SENDING
D = DeliveryStatus


def test_an_accepted_call_makes_a_delivery_sent_and_keeps_the_providers_reference(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    assert hand.record(claim, ended(row, D.SENT, ref="ches-1")) == []
    after = delivery(ledger, send.id)
    assert (after["status"], after["provider"], after["provider_ref"]) == ("sent", "ches", "ches-1")
    assert (after["attempt_count"], after["claim_id"], after["last_error"]) == (1, None, None)
    assert after["settled_at"] is not None
    [attempt] = attempts(ledger, send.id)
    assert (attempt["number"], attempt["outcome"], attempt["became"]) == (1, "accepted", "sent")
    assert (attempt["provider_ref"], attempt["signature"]) == ("ches-1", None)
    hand.release(send)
    assert batch(ledger, send.id)["settled_at"] is not None


def test_a_transient_failure_makes_a_delivery_retrying_until_its_time(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    result = ended(row, D.RETRYING)
    hand.record(claim, result)
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"], after["settled_at"]) == ("retrying", 1, None)
    assert after["next_attempt_at"] == result.next_attempt_at
    assert after["last_error"] == "code: what they said"
    hand.release(send)
    assert batch(ledger, send.id)["due_at"] == result.next_attempt_at


def test_a_delivery_that_must_wait_is_owed_again_without_an_attempt(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.OWED))
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"], after["claim_id"]) == ("owed", 0, None)
    assert len(attempts(ledger, send.id)) == 1
    hand.release(send)


def test_a_permanent_refusal_makes_a_delivery_failed(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.FAILED))
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"]) == ("failed", 1)
    hand.release(send)


def test_the_last_failure_makes_a_delivery_dead_lettered_with_its_error_and_no_next_time(
    ledger: Ledger, hand: Hand
) -> None:
    send = make_send(ledger, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="-1 second", attempts=4)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.DEAD_LETTERED))
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"], after["next_attempt_at"]) == ("dead_lettered", 5, None)
    assert after["last_error"] == "code: what they said"
    hand.release(send)


def test_an_ambiguous_call_makes_a_delivery_unsure_under_its_claim_with_the_evidence(
    ledger: Ledger, hand: Hand
) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.UNSURE))
    after = delivery(ledger, send.id)
    assert (after["status"], after["claim_id"], after["attempt_count"]) == ("unsure", claim.claim_id, 1)
    assert attempts(ledger, send.id)[0]["evidence"] == {"status": "0"}
    hand.release(send)


def test_a_suppressed_recipient_makes_a_delivery_suppressed(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.SUPPRESSED))
    assert delivery(ledger, send.id)["status"] == "suppressed"
    hand.release(send)


def test_a_group_changes_rows_attempts_and_the_counts_of_every_batch_together(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=14, batch_size=5, status=SENDING)
    claim, rows = hand.take(send)
    hand.record(claim, *[ended(row, list(SAYS)[row.row_no % 7]) for row in rows])
    assert counts(ledger, send.id) == dict.fromkeys((status.value for status in SAYS), 2)
    assert sum(len(attempts(ledger, send.id, row_no)) for row_no in range(1, 15)) == 14
    hand.release(send)


def test_a_call_that_was_never_made_leaves_no_attempt_behind(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    result = ended(row, D.OWED)
    hand.record(claim, replace(result, outcome="not_attempted", next_attempt_at=None))
    assert attempts(ledger, send.id) == []
    hand.release(send)
    assert batch(ledger, send.id)["due_in_s"] <= 0


def test_a_result_is_recorded_once_however_often_it_is_told(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    assert hand.record(claim, ended(row, D.SENT)) == []
    assert hand.record(claim, ended(row, D.SENT)) == [1]
    assert hand.record(claim, ended(row, D.RETRYING)) == [1]
    assert not hand.record_late(claim, ended(row, D.RETRYING))
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"]) == ("sent", 1)
    hand.release(send)


def test_an_unsure_result_told_again_since_its_commit_was_not_heard_of_is_one_attempt(
    ledger: Ledger, hand: Hand
) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    result = ended(row, D.UNSURE)
    assert hand.record(claim, result) == []
    assert hand.record(claim, result) == [1]
    assert not hand.record_late(claim, result)
    assert len(attempts(ledger, send.id)) == 1
    assert hand.record_late(claim, ended(row, D.SENT))
    hand.release(send)


def test_a_stale_claim_cannot_record_although_it_is_the_same_try_of_the_same_row(
    ledger: Ledger, hand: Hand, other: Hand
) -> None:
    send = make_send(ledger, status=SENDING)
    stale, [row] = hand.take(send)
    hand.record(stale, ended(row, D.OWED))  # given back: the attempt count is what it was
    hand.release(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET next_attempt_at = NULL")
        connection.execute("UPDATE batch SET due_at = now()")
    fresh, [again] = other.take(send)
    assert again.attempt_count == row.attempt_count
    assert hand.record(stale, ended(row, D.SENT)) == [1]
    assert not hand.record_late(stale, ended(row, D.SENT))
    assert delivery(ledger, send.id)["claim_id"] == fresh.claim_id
    other.record(fresh, ended(again, D.SENT))
    other.release(send)


@pytest.mark.parametrize("became", [status for status in SAYS if status is not D.UNSURE])
def test_the_late_result_of_a_parked_call_wins(ledger: Ledger, hand: Hand, became: DeliveryStatus) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    claim, [row, second] = hand.take(send)
    hand.record(claim, ended(second, D.SENT))
    hand.die()
    assert hand.free(send) == 1
    parked = delivery(ledger, send.id)
    assert (parked["status"], parked["claim_id"], parked["attempt_count"]) == ("unsure", claim.claim_id, 1)
    result = ended(row, became)
    assert hand.record(claim, result) == [1]
    assert hand.record_late(claim, result)
    after = delivery(ledger, send.id)
    assert (after["status"], after["claim_id"]) == (became, None)
    assert after["attempt_count"] == int(SAYS[became][1])
    assert [attempt["outcome"] for attempt in attempts(ledger, send.id)] == ["ambiguous", SAYS[became][0]]
    open_again = became in (D.OWED, D.RETRYING)
    assert (batch(ledger, send.id)["settled_at"] is None) == open_again
    assert batch(ledger, send.id)["due_at"] == result.next_attempt_at
    assert not hand.record_late(claim, result)


def test_the_late_result_of_an_older_claim_does_not_win_over_the_parking_of_a_newer_one(
    ledger: Ledger, hand: Hand, other: Hand
) -> None:
    send = make_send(ledger, status=SENDING)
    old, [row] = hand.take(send)
    hand.record(old, ended(row, D.OWED))
    hand.release(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET next_attempt_at = NULL")
        connection.execute("UPDATE batch SET due_at = now()")
    newer, _ = other.take(send)
    other.die()
    assert other.free(send) == 1
    assert not hand.record_late(old, ended(row, D.SENT))
    after = delivery(ledger, send.id)
    assert (after["status"], after["claim_id"]) == ("unsure", newer.claim_id)


def test_a_late_result_without_proof_leaves_the_delivery_parked_for_a_later_one(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    hand.free(send)
    assert hand.record_late(claim, ended(row, D.UNSURE))
    assert delivery(ledger, send.id)["claim_id"] == claim.claim_id
    assert hand.record_late(claim, ended(row, D.SENT))
    assert delivery(ledger, send.id)["status"] == "sent"


def test_a_late_failure_reopens_a_send_that_was_finished_meanwhile(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    hand.free(send)
    assert hand.complete(send)
    assert hand.record_late(claim, ended(row, D.RETRYING))
    assert send_status(ledger, send.id) == "sending"
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET next_attempt_at = now() - interval '1 second'")
        connection.execute("UPDATE batch SET due_at = now() - interval '1 second'")
        assert [due.send_id for due in chains.find_due(connection, after=UUID(int=send.id.int - 1), most=1, limit=9)]


def test_a_late_success_corrects_the_totals_of_a_finished_send(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    hand.free(send)
    hand.complete(send)
    hand.record_late(claim, ended(row, D.SENT))
    hand.complete(send)
    totals = one(ledger, "SELECT status, settled_counts FROM send")
    assert totals["status"] == "completed"
    assert (totals["settled_counts"]["email"]["sent"], totals["settled_counts"]["email"]["unsure"]) == (1, 0)


def test_a_late_failure_in_a_cancelled_send_is_swept_with_the_rest(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET status = 'cancelled', cancelled_at = now()")
    hand.die()
    hand.free(send)
    with ledger.autocommit() as connection:
        assert batches.close_cancelled(connection, send.id)
    hand.record_late(claim, ended(row, D.RETRYING))
    with ledger.autocommit() as connection:
        assert batches.find_to_sweep(connection, limit=9) == [(send.id, D.CANCELLED)]
    assert hand.sweep(send, D.CANCELLED) == 1
    with ledger.autocommit() as connection:
        assert batches.close_cancelled(connection, send.id)


def test_a_refused_address_joins_the_list_once_and_in_lower_case(ledger: Ledger) -> None:
    make_send(ledger)
    with ledger.autocommit() as connection:
        tenant = connection.execute("SELECT id FROM tenant").fetchone()
        assert tenant is not None
        for _ in range(2):
            deliveries.suppress(
                connection,
                tenant_id=tenant[0],
                channel=Channel.EMAIL,
                addresses=["Gone@Example.com", "gone@example.com"],
                reason="refused by ches",
            )
    assert scalar(ledger, "SELECT array_agg(address) FROM suppression") == ["gone@example.com"]
