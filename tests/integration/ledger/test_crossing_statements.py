"""Statements that meet in the middle: what one does while another waits, or looks at a moment that has passed."""

import time
from threading import Thread
from uuid import UUID, uuid4

import pytest

from shared.domain.states import Channel, DeliveryStatus, SendStatus
from shared.ledger import batches, chains, deliveries, periodic
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import attempts, batch, put_send, scalar
from tests.support.minutes import agree
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("balanced")
SENDING = SendStatus.SENDING
D = DeliveryStatus


def wait_for_a_lock_wait(ledger: Ledger) -> None:
    """Until some statement of this database waits for another."""
    wait_until(
        lambda: scalar(
            ledger,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
    )


def test_a_row_that_comes_back_while_its_batch_is_given_back_is_found_again(
    ledger: Ledger, hand: Hand, other: Hand
) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    claim, rows = hand.take(send)
    hand.die()
    assert hand.free(send) == 2
    assert hand.record_late(claim, ended(rows[0], D.OWED))
    put_due_now(ledger, send.id)
    again, [row] = other.take(send)
    other.record(again, ended(row, D.SENT))
    with ledger.transaction() as connection:
        assert deliveries.record_late(connection, claim, ended(rows[1], D.RETRYING), late_claim=uuid4())
        giving_back = Thread(target=other.release, args=(send,))
        giving_back.start()
        wait_for_a_lock_wait(ledger)
    giving_back.join(10)
    after = batch(ledger, send.id)
    assert (after["retrying"], after["settled_at"]) == (1, None)
    assert after["due_at"] is not None


@pytest.mark.parametrize("over", [SendStatus.SENDING, SendStatus.CANCELLED])
def test_a_send_is_not_finished_while_a_late_result_makes_a_row_owed(
    ledger: Ledger, hand: Hand, over: SendStatus
) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    hand.die()
    hand.free(send)
    put_send(ledger, send.id, over)
    finished: list[bool] = []

    def finish() -> None:
        with ledger.autocommit() as connection:
            finished.append(chains.complete(connection, send.id) or batches.close_cancelled(connection, send.id))

    with ledger.transaction() as connection:
        assert deliveries.record_late(connection, claim, ended(row, D.OWED), late_claim=uuid4())
        finishing = Thread(target=finish)
        finishing.start()
        wait_for_a_lock_wait(ledger)
    finishing.join(10)
    assert finished == [False]
    assert counts(ledger, send.id) == {"owed": 1}
    assert send_status(ledger, send.id) == over
    assert scalar(ledger, "SELECT settled_counts FROM send") is None


def test_a_result_recorded_while_a_dead_holders_batch_is_freed_waits_for_it_and_comes_late(
    ledger: Ledger, hand: Hand
) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    claim, rows = hand.take(send)
    hand.die()
    with ledger.transaction() as connection:
        batches.lock(connection, send_id=send.id, batches=[0])
        freed: list[int | None] = []
        freeing = Thread(target=lambda: freed.append(hand.free(send)))
        freeing.start()
        wait_for_a_lock_wait(ledger)
        assert deliveries.record(connection, claim, [ended(rows[0], D.SENT), ended(rows[1], D.RETRYING)]) == []
    freeing.join(10)
    assert freed == [0]
    assert counts(ledger, send.id) == {"sent": 1, "retrying": 1}
    assert batch(ledger, send.id)["due_at"] is not None


def test_a_batch_given_back_with_a_row_in_a_call_is_found_like_a_dead_workers(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    hand.take(send, limit=1)  # the answer to the claim was lost: its caller knows of no row
    hand.release(send)
    with ledger.autocommit() as connection:
        [lost] = batches.find_abandoned(connection, limit=9)
        assert batches.free_abandoned(connection, lost) == 1
    assert counts(ledger, send.id) == {"owed": 2, "unsure": 1}
    assert [attempt["code"] for attempt in attempts(ledger, send.id)] == ["outcome_lost"]
    assert len(hand.lease(send)) == 1
    hand.release(send)


def test_pages_of_due_sends_hold_every_channel_of_a_send(ledger: Ledger) -> None:
    send = make_send(ledger, status=SENDING)
    with ledger.autocommit() as connection:
        connection.execute('UPDATE send SET accepted = \'{"email": 1, "sms": 1}\'')
        connection.execute(
            "INSERT INTO delivery (send_id, row_no, channel, address) VALUES (%s, 2, 'sms', '+16045550100')", [send.id]
        )
        connection.execute(
            "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, owed)"
            " VALUES (%s, 1, 'sms', 2, 2, now(), 1)",
            [send.id],
        )
        agree(connection)
        found: list[Channel] = []
        after, after_channel = UUID(int=0), Channel.SMS
        while page := chains.find_due(connection, after=after, after_channel=after_channel, most=1, limit=1):
            after, after_channel = page[-1].send_id, page[-1].channel
            found += [due.channel for due in page]
    assert found == [Channel.EMAIL, Channel.SMS]


def test_a_clock_that_is_a_day_ahead_takes_no_tick_from_the_others(ledger: Ledger) -> None:
    now_ms = int(time.time() * 1000)
    with ledger.autocommit() as connection:
        ahead = periodic.claim_tick(connection, name="due_work", slot=now_ms + 86_400_000, interval_ms=200)
        assert ahead is not None
        assert ahead <= time.time() * 1000
        wait_until(
            lambda: periodic.claim_tick(connection, name="due_work", slot=int(time.time() * 1000), interval_ms=200)
        )


def put_due_now(ledger: Ledger, send_id: UUID) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE delivery SET next_attempt_at = now() WHERE next_attempt_at > now() AND send_id = %s", [send_id]
        )
        connection.execute("UPDATE batch SET due_at = now() WHERE due_at > now() AND send_id = %s", [send_id])
