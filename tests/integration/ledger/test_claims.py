"""What a worker may take: leases of batches, claims of windows, and everything that stands in their way."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from shared.domain.states import Channel, SendStatus
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import batch, delivery, put_rows, put_send

pytestmark = pytest.mark.usefixtures("balanced")
SENDING = SendStatus.SENDING


def test_a_claim_makes_an_owed_delivery_sending(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    claim, [row] = hand.take(send)
    after = delivery(ledger, send.id)
    assert (after["status"], after["claim_id"]) == ("sending", claim.claim_id)
    assert after["last_attempt_at"] == after["first_attempt_at"] == row.attempt_at
    assert (row.address, row.params, row.attempt_count, row.epoch) == ("person0@example.com", {"n": 1}, 0, 0)
    assert row.previous_attempt_at is None
    assert not row.suppressed


def test_a_claim_makes_a_retrying_delivery_that_is_due_sending(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="-1 second", attempts=2)
    before = delivery(ledger, send.id)
    _, [row] = hand.take(send)
    after = delivery(ledger, send.id)
    assert (after["status"], after["next_attempt_at"]) == ("sending", None)
    assert row.attempt_count == 2
    assert row.previous_attempt_at == before["last_attempt_at"]


def test_rows_whose_time_has_not_come_are_left(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=4, status=SENDING)
    put_rows(ledger, send.id, [1, 2], "retrying", due_in="1 minute")
    put_rows(ledger, send.id, [3], "owed", due_in="1 minute")
    _, rows = hand.take(send)
    assert [row.row_no for row in rows] == [4]


def test_a_claim_takes_no_more_than_asked_and_the_next_one_goes_on_behind_it(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=60, status=SENDING)
    _, first = hand.take(send, limit=40)
    _, second = hand.claim(send, [0, 1, 2], limit=40)
    assert [row.row_no for row in first + second] == list(range(1, 61))
    assert {row.batch_no for row in first} == {0, 1}


@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SENDING])
def test_nothing_is_claimed_of_a_send_that_is_not_being_sent(ledger: Ledger, hand: Hand, status: SendStatus) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    hand.lease(send)
    put_send(ledger, send.id, status)
    _, rows = hand.claim(send)
    assert rows == []
    put_send(ledger, send.id, SENDING)


def test_nothing_is_claimed_of_a_send_past_its_valid_until(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING, valid_until="-1 second")
    _, rows = hand.take(send)
    assert rows == []


def test_nothing_is_claimed_of_a_batch_that_was_never_leased(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    assert hand.claim(send)[1] == []


def test_nothing_is_claimed_of_a_batch_that_somebody_else_holds_by_now(ledger: Ledger, hand: Hand, other: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    hand.lease(send)
    hand.die()
    hand.free(send)
    other.take(send, limit=0)
    assert hand.claim(send)[1] == []


def test_a_batch_is_not_leased_while_its_holder_lives(ledger: Ledger, hand: Hand, other: Hand) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    hand.register()
    other.register()
    assert [leased.waiting for leased in hand.lease(send)] == [2]
    assert other.lease(send) == []
    assert other.free(send, holder=hand.worker) is None
    assert batch(ledger, send.id)["holder"] == hand.worker


def test_not_even_a_dead_holders_batch_is_leased_before_it_is_freed(ledger: Ledger, hand: Hand, other: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    hand.lease(send)
    hand.die()
    other.register()
    assert other.lease(send) == []


def test_a_batch_that_is_not_due_is_not_leased(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="1 second")
    hand.register()
    assert hand.lease(send) == []


def test_the_batches_due_longest_are_leased_first(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, batch_size=1, status=SENDING)
    for row_no, due in ((1, "-1 minute"), (2, "-3 minutes"), (3, "-2 minutes")):
        put_rows(ledger, send.id, [row_no], "retrying", due_in=due)
    hand.register()
    assert [leased.batch_no for leased in hand.lease(send, limit=1)] == [1]
    assert [leased.batch_no for leased in hand.lease(send, limit=1)] == [2]


def test_a_chain_leases_only_batches_of_its_channel(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    wrong = make_send(ledger, channel=Channel.SMS, status=SENDING)
    hand.register()
    assert hand.lease(type(send)(send.id, Channel.SMS, 1)) == []
    assert len(hand.lease(wrong)) == 1


def test_processes_that_lease_at_the_same_moment_share_the_batches_and_claim_no_row_twice(ledger: Ledger) -> None:
    send = make_send(ledger, count=200, batch_size=10, status=SENDING)

    def work(number: int) -> list[int]:
        one = Hand(ledger).register()
        seen: list[int] = []
        while held := [leased.batch_no for leased in one.lease(send, chain_no=number, limit=2)]:
            seen += [row.row_no for row in one.claim(send, held)[1]]
        return seen

    with ThreadPoolExecutor(6) as pool:
        rows = sorted(row for seen in pool.map(work, range(6)) for row in seen)
    assert rows == list(range(1, 201))


def test_two_claims_of_the_same_batch_at_the_same_moment_share_its_rows(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=25, status=SENDING)
    hand.register()
    hand.lease(send)
    with ThreadPoolExecutor(4) as pool:
        windows = list(pool.map(lambda _: hand.claim(send, limit=7), range(4)))
    rows = [row.row_no for _, window in windows for row in window]
    assert len(rows) == len(set(rows))
    assert counts(ledger, send.id)["sending"] == len(rows)


def test_a_suppressed_address_is_marked_whatever_its_case_and_only_for_its_tenant_and_channel(
    ledger: Ledger, hand: Hand
) -> None:
    with ledger.autocommit() as connection:
        connection.execute("INSERT INTO tenant (name) VALUES ('acme'), ('globex')")
        connection.execute(
            "INSERT INTO suppression (tenant_id, channel, address, reason)"
            " SELECT id, 'email', 'gone@example.com', 'asked' FROM tenant WHERE name = 'acme'"
        )
    addresses = ["Gone@Example.com", "here@example.com"]
    send = make_send(ledger, addresses=addresses, status=SENDING)
    elsewhere = make_send(ledger, addresses=addresses, status=SENDING, tenant="globex")
    by_sms = make_send(ledger, addresses=["+16045550100"], channel=Channel.SMS, status=SENDING)
    assert [row.suppressed for row in hand.take(send)[1]] == [True, False]
    assert [row.suppressed for row in hand.take(elsewhere)[1]] == [False, False]
    assert [row.suppressed for row in hand.take(by_sms)[1]] == [False]


def test_a_claim_of_batches_that_do_not_exist_takes_nothing(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING)
    hand.register()
    assert hand.claim(send, [7, 8])[1] == []
    assert hand.claim(send, [])[1] == []
    assert hand.claim(type(send)(uuid4(), Channel.EMAIL, 1))[1] == []
