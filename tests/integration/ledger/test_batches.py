"""Batches given back, freed from the dead, swept, and the sends that end with them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger import batches
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import attempts, batch, delivery, put_rows, put_send, scalar

pytestmark = pytest.mark.usefixtures("balanced")
SENDING = SendStatus.SENDING
D = DeliveryStatus
STOPPING = [("cancelled", D.CANCELLED), ("expired", D.EXPIRED)]


def test_a_released_batch_is_due_when_the_earliest_of_its_rows_is(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=4, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="20 minutes")
    put_rows(ledger, send.id, [2], "owed", due_in="10 minutes")
    claim, [third, fourth] = hand.take(send)
    hand.record(claim, ended(third, D.RETRYING), ended(fourth, D.SENT))
    hand.release(send)
    after = batch(ledger, send.id)
    assert after["due_in_s"] == pytest.approx(300, abs=10)
    assert (after["holder"], after["chain_no"], after["leased_at"], after["settled_at"]) == (None, None, None, None)


def test_a_released_batch_with_a_row_that_was_never_tried_is_due_at_once(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="20 minutes")
    claim, [second] = hand.take(send, limit=1)
    hand.record(claim, ended(second, D.SENT))
    hand.release(send)
    assert batch(ledger, send.id)["due_in_s"] <= 0


def test_a_released_batch_with_nothing_open_is_settled_and_never_due(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    claim, rows = hand.take(send)
    hand.record(claim, *[ended(row, D.SENT) for row in rows])
    hand.release(send)
    after = batch(ledger, send.id)
    assert after["due_at"] is None
    assert after["settled_at"] is not None


def test_a_release_touches_only_the_batches_named_and_only_those_of_its_own_chain(
    ledger: Ledger, hand: Hand, other: Hand
) -> None:
    send = make_send(ledger, count=5, batch_size=1, status=SENDING)
    hand.register()
    other.register()
    hand.lease(send, limit=2)
    hand.lease(send, chain_no=1, limit=1)
    other.lease(send, limit=1)
    hand.release(send, only=[0, 2, 3])
    assert [batch(ledger, send.id, n)["holder"] for n in range(5)] == [
        None, hand.worker, hand.worker, other.worker, None,
    ]  # fmt: skip
    hand.release(send)
    assert [batch(ledger, send.id, n)["holder"] for n in range(5)] == [None, None, hand.worker, other.worker, None]


def test_the_dead_are_found_and_the_living_are_not(ledger: Ledger, hand: Hand, other: Hand) -> None:
    send = make_send(ledger, count=2, batch_size=1, status=SENDING)
    hand.register()
    other.register()
    hand.lease(send, limit=1)
    other.lease(send, limit=1)
    hand.die()
    with ledger.autocommit() as connection:
        [found] = batches.find_abandoned(connection, limit=9)
    assert (found.send_id, found.batch_no, found.holder) == (send.id, 0, hand.worker)


def test_a_process_that_ended_cleanly_leaves_its_batches_free_to_be_found(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    hand.lease(send)
    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM worker")
        assert len(batches.find_abandoned(connection, limit=9)) == 1
    assert hand.free(send) == 0


def test_freeing_parks_only_the_calls_in_flight_and_the_rest_is_due_again(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=6, status=SENDING)
    put_rows(ledger, send.id, [6], "retrying", due_in="20 minutes")
    claim, [first, *_] = hand.take(send, limit=3)
    hand.record(claim, ended(first, D.SENT))
    hand.die()
    assert hand.free(send) == 2
    assert counts(ledger, send.id) == {"sent": 1, "unsure": 2, "owed": 2, "retrying": 1}
    after = batch(ledger, send.id)
    assert after["holder"] is None
    assert after["due_in_s"] <= 0
    parked = delivery(ledger, send.id, 2)
    assert (parked["status"], parked["claim_id"], parked["attempt_count"]) == ("unsure", claim.claim_id, 1)
    assert "worker died" in parked["last_error"]
    [attempt] = attempts(ledger, send.id, 2)
    assert (attempt["outcome"], attempt["code"], attempt["claim_id"]) == ("ambiguous", "worker_died", claim.claim_id)
    assert attempt["evidence"] == {"worker": str(hand.worker)}
    assert attempts(ledger, send.id, 4) == []


def test_a_freed_batch_with_nothing_left_is_settled(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    hand.take(send)
    hand.die()
    assert hand.free(send) == 2
    after = batch(ledger, send.id)
    assert after["due_at"] is None
    assert after["settled_at"] is not None


def test_freeing_twice_or_by_many_at_once_parks_each_call_once(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=5, status=SENDING)
    hand.take(send)
    hand.die()
    with ThreadPoolExecutor(4) as pool:
        parked = list(pool.map(lambda _: hand.free(send), range(4)))
    assert sorted(parked, key=str) == [5, None, None, None]
    assert len(attempts(ledger, send.id)) == 1


def test_a_holder_that_came_back_to_life_keeps_its_batch(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    hand.register()
    assert hand.free(send) is None
    assert hand.record(claim, ended(row, D.SENT)) == []
    hand.release(send)


def test_what_the_dead_recorded_in_time_stays_recorded(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    assert hand.record(claim, ended(row, D.SENT)) == []
    assert hand.free(send) == 0
    assert counts(ledger, send.id) == {"sent": 1}


@pytest.mark.parametrize(("status", "target"), STOPPING)
def test_a_sweep_settles_what_is_owed(ledger: Ledger, hand: Hand, status: str, target: DeliveryStatus) -> None:
    send = make_send(ledger, status=SENDING)
    assert hand.sweep(send, target) == 1
    after = delivery(ledger, send.id)
    assert (after["status"], after["attempt_count"]) == (status, 0)
    assert after["settled_at"] is not None


@pytest.mark.parametrize(("status", "target"), STOPPING)
def test_a_sweep_settles_what_is_retrying(ledger: Ledger, hand: Hand, status: str, target: DeliveryStatus) -> None:
    send = make_send(ledger, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", attempts=1)
    assert hand.sweep(send, target) == 1
    after = delivery(ledger, send.id)
    assert (after["status"], after["next_attempt_at"], after["attempt_count"]) == (status, None, 1)


def test_a_sweep_leaves_settled_rows_and_held_batches_alone(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=6, batch_size=2, status=SENDING)
    put_rows(ledger, send.id, [3], "sent")
    put_rows(ledger, send.id, [5, 6], "dead_lettered")
    hand.register()
    hand.lease(send, limit=1)
    assert hand.sweep(send, D.CANCELLED) == 1
    assert counts(ledger, send.id) == {"owed": 2, "sent": 1, "cancelled": 1, "dead_lettered": 2}
    hand.release(send)
    assert hand.sweep(send, D.CANCELLED) == 2


def test_a_sweep_counts_what_it_swept_and_leaves_a_row_it_did_not_see_to_the_next(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    unseen = "UPDATE delivery SET status = %s, claim_id = %s WHERE row_no = 2"
    with ledger.autocommit() as connection:
        connection.execute(unseen, ["sending", send.id])  # as a statement sees it that began before the row came back
        assert hand.sweep(send, D.CANCELLED) == 1
        connection.execute(unseen, ["owed", None])
    after = batch(ledger, send.id)
    assert (after["owed"], after["cancelled"], after["settled_at"]) == (1, 1, None)
    assert after["due_at"] is not None
    assert hand.sweep(send, D.CANCELLED) == 1


def test_a_sweep_is_bounded_and_goes_on_where_it_stopped(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=10, batch_size=2, status=SENDING)
    assert [hand.sweep(send, D.EXPIRED, limit=2) for _ in range(4)] == [4, 4, 2, 0]


def test_cancelled_sends_and_sends_past_their_time_are_found_for_sweeping(ledger: Ledger) -> None:
    cancelled = make_send(ledger, status=SENDING)
    put_send(ledger, cancelled.id, SendStatus.CANCELLED)
    late = [make_send(ledger, status=SENDING, valid_until="-1 second") for _ in range(3)]
    put_send(ledger, late[1].id, SendStatus.PAUSED)
    put_send(ledger, late[2].id, SendStatus.PENDING)
    make_send(ledger, status=SENDING, valid_until="1 minute")
    done = make_send(ledger, status=SENDING, valid_until="-1 second")
    put_rows(ledger, done.id, [1], "sent")
    with ledger.autocommit() as connection:
        found = batches.find_to_sweep(connection, limit=9)
    assert dict(found) == {cancelled.id: D.CANCELLED, **dict.fromkeys((send.id for send in late), D.EXPIRED)}


def test_cancelled_sends_that_wait_for_others_take_nobodys_place(ledger: Ledger, hand: Hand) -> None:
    proved, held = make_send(ledger, status=SENDING), make_send(ledger, count=2, status=SENDING)
    put_rows(ledger, proved.id, [1], "unsure", attempts=1, prove_in="1 hour")
    hand.take(held, limit=1)
    owed, swept = make_send(ledger, status=SENDING), make_send(ledger, status=SENDING)
    put_rows(ledger, swept.id, [1], "cancelled")
    for send in (proved, held, owed, swept):
        put_send(ledger, send.id, SendStatus.CANCELLED)
    with ledger.autocommit() as connection:
        assert batches.find_to_sweep(connection, limit=2) == [(owed.id, D.CANCELLED), (swept.id, D.CANCELLED)]


def test_a_cancelled_send_is_closed_with_its_totals_once_nothing_of_it_is_open(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    claim, [row] = hand.take(send, limit=1)
    put_send(ledger, send.id, SendStatus.CANCELLED)
    with ledger.autocommit() as connection:
        assert not batches.close_cancelled(connection, send.id)
    hand.record(claim, ended(row, D.SENT))
    hand.release(send)
    hand.sweep(send, D.CANCELLED)
    with ledger.autocommit() as connection:
        assert batches.close_cancelled(connection, send.id)
        assert batches.find_to_sweep(connection, limit=9) == []
    totals = scalar(ledger, "SELECT settled_counts FROM send")["email"]
    assert (totals["sent"], totals["cancelled"], totals["failed"]) == (1, 2, 0)


def test_a_send_that_is_not_cancelled_is_not_closed_as_such(ledger: Ledger) -> None:
    send = make_send(ledger, status=SENDING)
    put_rows(ledger, send.id, [1], "sent")
    with ledger.autocommit() as connection:
        assert not batches.close_cancelled(connection, send.id)


def test_a_call_in_flight_keeps_a_swept_send_open_until_its_outcome_is_known(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    claim, [row] = hand.take(send, limit=1)
    put_send(ledger, send.id, SendStatus.CANCELLED)
    assert hand.sweep(send, D.CANCELLED) == 0
    hand.record(claim, ended(row, D.RETRYING))
    hand.release(send)
    assert hand.sweep(send, D.CANCELLED) == 2
    assert counts(ledger, send.id) == {"cancelled": 2}
