"""Counts of what happened by minute: complete, never in anybody's way, and never less than before."""

import pytest

from shared.domain import pace
from shared.domain.states import Channel, DeliveryStatus, Mode, SendStatus
from shared.ledger import deliveries, minutes
from shared.ledger.db import Ledger
from shared.ledger.minutes import Counts, Total
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import make_send
from tests.support.ledger_rows import scalar

SENDING = SendStatus.SENDING
D = DeliveryStatus


def totals(ledger: Ledger) -> dict[str, Total]:
    with ledger.autocommit() as connection:
        return {total.provider: total for total in minutes.totals(connection)}


@pytest.mark.usefixtures("balanced")
def test_what_calls_came_to_is_counted_in_their_minute(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=8, status=SENDING, age="25 seconds")
    claim, rows = hand.take(send)
    became = [D.SENT, D.SENT, D.SENT, D.FAILED, D.DEAD_LETTERED, D.UNSURE, D.RETRYING, D.OWED]
    hand.record(claim, *(ended(row, status) for row, status in zip(rows, became, strict=True)))
    with ledger.autocommit() as connection:
        [running] = minutes.last(connection, minutes=60)
        [took] = minutes.took(connection, minutes=60, span=10)
    assert (running.ago, running.mode, running.channel) == (0, Mode.LIVE, Channel.EMAIL)
    assert running.counts == Counts(calls=8, sent=3, failed=1, dead_lettered=1, unsure=1, retried=1, throttled=1)
    assert 20 <= (pace.percentile(took.buckets, 0.5) or 0) < 30
    assert sum(took.buckets.values()) == 3


def test_the_intended_delay_of_a_scheduled_send_is_not_counted_as_its_delivery_time(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, status=SENDING, age="1 hour", send_at="-4 seconds")
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, D.SENT))
    with ledger.autocommit() as connection:
        [took] = minutes.took(connection, minutes=60, span=10)
    assert 3 <= (pace.percentile(took.buckets, 1) or 0) <= 7


def test_the_ledger_and_the_domain_cut_times_into_the_same_buckets(ledger: Ledger) -> None:
    for number, bound in enumerate(pace.BOUNDS_S, start=1):
        for seconds, bucket in ((bound - 0.001, number), (bound, number + 1)):
            found = scalar(ledger, "SELECT took_bucket_v1(%s * interval '1 second')", seconds)
            assert found == bucket, seconds


def test_two_transactions_that_count_the_same_never_wait_for_each_other(ledger: Ledger) -> None:
    one, two = Hand(ledger), Hand(ledger)
    sends = [make_send(ledger, status=SENDING) for _ in range(2)]
    (claim, [row]), (other_claim, [other_row]) = (hand.take(send) for hand, send in zip((one, two), sends, strict=True))
    with ledger.transaction() as connection:
        assert deliveries.record(connection, claim, [ended(row, D.SENT)]) == []
        with ledger.transaction() as beside:
            beside.execute("SET LOCAL lock_timeout = '1s'")
            assert deliveries.record(beside, other_claim, [ended(other_row, D.SENT)]) == []
    assert totals(ledger)["ches"].counts.sent == 2


def test_folding_loses_nothing_and_leaves_the_last_minutes_alone(ledger: Ledger) -> None:
    make_send(ledger, count=3)
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent)"
            " SELECT now() - ago * interval '1 minute', writer, 'live', 'email', 'ches', took, 1"
            " FROM unnest('{1, 11, 11, 90, 190, 191, 9000}'::int[]) WITH ORDINALITY AS a (ago, writer),"
            " unnest('{3, 4}'::int[]) AS took"
        )
        before = totals(ledger)
        while minutes.fold(connection, limit=3):
            pass
        assert totals(ledger) == before
        assert before["ches"].took == {3: 7, 4: 7}
        rows = connection.execute(
            "SELECT minute = '-infinity', writer = 0, count(*) FROM minute_count WHERE provider = 'ches' GROUP BY 1, 2"
        ).fetchall()
    # Minutes 11, 11 and 90 of one writer each; all that is older than three hours; the last minutes as they were.
    assert sorted(rows) == [(False, False, 2), (False, True, 4), (True, True, 2)]


def test_a_count_that_a_transaction_still_writes_to_is_folded_later(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent)"
            " VALUES (now() - interval '1 hour', 7, 'live', 'email', 'ches', 0, 1)"
        )
        with ledger.transaction() as busy:
            busy.execute("UPDATE minute_count SET sent = sent + 1 WHERE writer = 7")
            assert minutes.fold(connection, limit=100) == 0
        assert minutes.fold(connection, limit=100) == 1
    assert totals(ledger)["ches"].counts == Counts(sent=2)
