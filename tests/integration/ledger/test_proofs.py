"""Rows being proved: who may look, whose finding counts, and what their batch and send say meanwhile."""

from dataclasses import replace
from threading import Thread
from uuid import uuid4

import pytest

from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger import deliveries, proofs
from shared.ledger.db import Ledger
from shared.ledger.proofs import ProvedBatch
from tests.integration.ledger.hand import SAYS, Hand, ended, proved
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import attempts, batch, delivery, put_rows, scalar

pytestmark = pytest.mark.usefixtures("balanced")
D = DeliveryStatus


@pytest.fixture
def send(ledger: Ledger) -> MadeSend:
    """Three rows that are due for a look, one that is later, one that is parked."""
    made = make_send(ledger, count=5, status=SendStatus.SENDING)
    put_rows(ledger, made.id, [1, 2, 3], "unsure", attempts=1, prove_in="-1 second")
    put_rows(ledger, made.id, [4], "unsure", attempts=1, prove_in="1 hour")
    put_rows(ledger, made.id, [5], "unsure", attempts=1)
    return made


def test_an_ambiguous_call_that_can_be_proved_keeps_its_batch_open(ledger: Ledger, hand: Hand) -> None:
    made = make_send(ledger, count=2, status=SendStatus.SENDING)
    claim, rows = hand.take(made)
    first = ended(rows[0], D.UNSURE)
    hand.record(claim, replace(first, prove_at=first.ended_at), ended(rows[1], D.UNSURE))
    hand.release(made)
    after = batch(ledger, made.id)
    assert (after["unsure"], after["proving"], after["settled_at"]) == (2, 1, None)
    assert after["prove_at"] == first.ended_at
    assert not hand.complete(made)
    [row] = hand.look(made)
    hand.prove(made, proved(row, D.UNSURE))
    after = batch(ledger, made.id)
    assert (after["unsure"], after["proving"], after["prove_at"]) == (2, 0, None)
    assert after["settled_at"] is not None
    assert hand.complete(made)


def test_only_what_is_due_is_taken_and_nobody_else_takes_it_until_the_hold_is_over(
    ledger: Ledger, hand: Hand, send: MadeSend
) -> None:
    assert [row.row_no for row in hand.look(send)] == [1, 2, 3]
    assert hand.look(send) == []
    with ledger.autocommit() as connection:
        assert proofs.find_due(connection, limit=9) == []


def test_a_limit_leaves_the_rest_to_be_found(ledger: Ledger, send: MadeSend) -> None:
    with ledger.autocommit() as connection:
        assert len(proofs.take(connection, ProvedBatch(send.id, 0), hold_s=60, limit=2)) == 2
        assert proofs.find_due(connection, limit=9) == [ProvedBatch(send.id, 0)]
        assert len(proofs.take(connection, ProvedBatch(send.id, 0), hold_s=60, limit=2)) == 1


@pytest.mark.parametrize("became", list(SAYS))
def test_each_finding_settles_the_row_and_its_batchs_counts(
    ledger: Ledger, hand: Hand, send: MadeSend, became: DeliveryStatus
) -> None:
    [row, *_] = hand.look(send)
    assert hand.prove(send, proved(row, became)) == []
    after = delivery(ledger, send.id)
    assert (after["status"], after["prove_at"]) == (became, None)
    assert after["attempt_count"] == int(SAYS[became][1])
    assert (after["claim_id"] is None) == (became is not D.UNSURE)
    assert (after["settled_at"] is None) == (became in {D.OWED, D.RETRYING})
    assert after["last_error"] == (None if became is D.SENT else "what was found")
    attempt = attempts(ledger, send.id)[-1]
    assert (attempt["became"], attempt["detail"], attempt["evidence"]["found"]) == (became, "what was found", "it")
    assert batch(ledger, send.id)["proving"] == 3


def test_a_look_that_settles_nothing_leaves_no_attempt_and_counts_an_absence(
    ledger: Ledger, hand: Hand, send: MadeSend
) -> None:
    [row, *_] = hand.look(send)
    hand.prove(send, proved(row, D.UNSURE, again_s=30))
    after = delivery(ledger, send.id)
    assert (after["status"], after["prove_count"], after["settled_at"]) == ("unsure", 1, None)
    assert len(attempts(ledger, send.id)) == 1
    assert batch(ledger, send.id)["proving"] == 4


def test_a_row_owed_again_is_due_at_once_and_one_retrying_at_its_time(
    ledger: Ledger, hand: Hand, send: MadeSend
) -> None:
    rows = hand.look(send)
    hand.prove(send, proved(rows[0], D.RETRYING))
    assert batch(ledger, send.id)["due_in_s"] > 200
    hand.prove(send, proved(rows[1], D.OWED))
    assert batch(ledger, send.id)["due_in_s"] <= 0
    hand.register()
    assert [leased.waiting for leased in hand.lease(send)] == [2]
    hand.release(send)
    assert batch(ledger, send.id)["due_in_s"] <= 0


def test_what_a_look_found_counts_only_while_it_is_the_newest_look_but_taken_counts_always(
    ledger: Ledger, hand: Hand, send: MadeSend
) -> None:
    first, second, third = hand.look(send, hold_s=-1)
    newer = hand.look(send)
    assert len(newer) == 3
    late = [proved(first, D.OWED), proved(second, D.UNSURE), proved(third, D.SENT)]
    assert hand.prove(send, *late) == [1, 2]
    assert counts(ledger, send.id) == {"unsure": 4, "sent": 1}
    assert hand.prove(send, *[proved(row, D.OWED) for row in newer]) == [3]
    assert counts(ledger, send.id) == {"unsure": 2, "sent": 1, "owed": 2}


def test_a_finding_of_an_earlier_claim_changes_nothing(ledger: Ledger, hand: Hand, send: MadeSend) -> None:
    [row, *_] = hand.look(send)
    put_rows(ledger, send.id, [1], "unsure", claim=uuid4(), attempts=0, prove_in="-1 second")
    assert hand.prove(send, proved(row, D.SENT)) == [1]
    assert delivery(ledger, send.id)["status"] == "unsure"


def test_a_result_of_the_call_itself_ends_the_proving_and_the_next_look_is_that_of_the_rest(
    ledger: Ledger, hand: Hand
) -> None:
    made = make_send(ledger, count=2, status=SendStatus.SENDING)
    claim, rows = hand.take(made)
    hand.die()
    assert hand.free(made, looks={"ches": 30.0, "twilio": 600.0}) == 2
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET prove_at = prove_at + interval '1 hour' WHERE row_no = 2")
    assert hand.record_late(claim, ended(rows[0], D.SENT))
    after = batch(ledger, made.id)
    assert (after["proving"], after["settled_at"]) == (1, None)
    assert after["prove_at"] == delivery(ledger, made.id, 2)["prove_at"]
    assert hand.record_late(claim, ended(rows[1], D.UNSURE))
    assert batch(ledger, made.id)["proving"] == 1
    assert hand.record_late(claim, ended(rows[1], D.FAILED))
    after = batch(ledger, made.id)
    assert (after["proving"], after["prove_at"]) == (0, None)
    assert after["settled_at"] is not None


def test_a_dead_workers_calls_are_proved_by_what_their_provider_offers(ledger: Ledger, hand: Hand) -> None:
    made = make_send(ledger, count=3, status=SendStatus.SENDING)
    hand.take(made)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET provider = 'elsewhere' WHERE row_no = 2")
        connection.execute("UPDATE delivery SET provider = NULL WHERE row_no = 3")
    hand.die()
    hand.free(made, looks={"smtp": 0.0, "ches": 30.0})
    wait = scalar(ledger, "SELECT extract(epoch FROM prove_at - now())::float8 FROM delivery WHERE row_no = 1")
    assert 20 < wait <= 30
    for row_no in (2, 3):
        row = delivery(ledger, made.id, row_no)
        assert (row["status"], row["prove_at"]) == ("unsure", None)
        assert row["settled_at"] is not None
    assert [attempts(ledger, made.id, n)[0]["provider"] for n in (1, 2, 3)] == ["ches", "elsewhere", "unknown"]


def test_a_prover_passes_by_a_batch_that_somebody_works_on(ledger: Ledger, hand: Hand, send: MadeSend) -> None:
    with ledger.transaction() as connection:
        connection.execute("SELECT 1 FROM batch FOR UPDATE")
        assert hand.look(send) == []
    assert len(hand.look(send)) == 3


def test_provers_receipts_and_late_results_at_once_leave_the_books_right(ledger: Ledger, hand: Hand) -> None:
    made = make_send(ledger, count=60, status=SendStatus.SENDING)
    claim, rows = hand.take(made)
    hand.die()
    for batch_no in range(3):
        hand.free(made, batch_no, looks={"ches": 0.0})
    faults: list[BaseException] = []

    def prover(became: DeliveryStatus) -> None:
        try:
            for _ in range(4):
                for batch_no in range(3):
                    looked = hand.look(made, batch_no, hold_s=0)
                    hand.prove(made, *[proved(row, became) for row in looked[:7]], batch_no=batch_no)
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    def late() -> None:
        try:
            for row in rows:
                hand.record_late(claim, ended(row, D.SENT))
        except BaseException as fault:  # noqa: BLE001
            faults.append(fault)

    threads = [Thread(target=prover, args=(became,)) for became in (D.SENT, D.OWED, D.FAILED)]
    threads.append(Thread(target=late))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert sum(counts(ledger, made.id).values()) == 60
    assert "unsure" not in counts(ledger, made.id)


def test_taken_is_true_of_a_row_that_was_parked_and_its_send_finished_meanwhile(ledger: Ledger, hand: Hand) -> None:
    made = make_send(ledger, status=SendStatus.SENDING)
    put_rows(ledger, made.id, [1], "unsure", attempts=1, prove_in="-1 second")
    [row] = hand.look(made, hold_s=-1)
    [newer] = hand.look(made)
    hand.prove(made, proved(newer, D.UNSURE))
    assert hand.complete(made)
    assert hand.prove(made, proved(row, D.SENT)) == [1]
    claim = deliveries.Claim(made.id, made.channel, row.claim_id, row.attempt_at, "ches")
    result = replace(
        ended(deliveries.ClaimedDelivery(1, 0, "", None, 0, 0, row.attempt_at, None, suppressed=False), D.SENT)
    )
    assert hand.record_late(claim, result)
    assert send_status(ledger, made.id) == "sending"
    assert hand.complete(made)
    assert scalar(ledger, "SELECT settled_counts -> 'email' ->> 'sent' FROM send") == "1"
