"""The books from the ledger: balanced at every mixture of states, and any difference by id."""

from uuid import uuid4

from shared.domain.states import Channel, DeliveryStatus, Mode, SendStatus
from shared.ledger import books
from shared.ledger.db import Ledger
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import put_rows, put_send

SENDING = SendStatus.SENDING


def mixed(ledger: Ledger, **more: object) -> MadeSend:
    """A send with five deliveries in each state."""
    send = make_send(ledger, count=5 * len(DeliveryStatus), batch_size=7, status=SENDING, **more)  # type: ignore[arg-type]
    for number, status in enumerate(DeliveryStatus):
        put_rows(ledger, send.id, range(5 * number + 1, 5 * number + 6), status.value)
    return send


def test_the_books_of_one_send_and_of_the_service_balance_in_every_state(ledger: Ledger) -> None:
    send = mixed(ledger)
    mixed(ledger, mode=Mode.TEST)
    make_send(ledger, addresses=["+16045550110"], channel=Channel.SMS)
    with ledger.autocommit() as connection:
        [line] = books.lines(connection, send_id=send.id)
        everything = books.lines(connection)
        assert books.sends_out_of_balance(connection, limit=9) == []
        assert books.deliveries_out_of_balance(connection, send.id, limit=9) == []
    assert (line.mode, line.channel, line.status) == (Mode.LIVE, Channel.EMAIL, SENDING)
    assert dict.fromkeys(DeliveryStatus, 5) == {
        status: line.books.waiting if status is DeliveryStatus.OWED else getattr(line.books, status.value)
        for status in DeliveryStatus
    }
    assert [(each.mode.value, each.channel.value, each.books.unaccounted) for each in everything] == [
        ("live", "email", 0), ("live", "sms", 0), ("test", "email", 0),
    ]  # fmt: skip


def test_what_waits_for_its_time_is_told_from_what_may_go_now(ledger: Ledger) -> None:
    send = make_send(ledger, count=50, status=SENDING)
    put_rows(ledger, send.id, range(1, 26), "owed", due_in="1 hour")
    with ledger.autocommit() as connection:
        [line] = books.lines(connection, send_id=send.id)
    owed = line.books.where(SENDING, None)
    assert (owed.ready, owed.backoff) == (25, 25)
    assert owed.backoff_until is not None


def test_a_send_whose_batches_are_gone_is_counted_by_the_totals_of_its_end(ledger: Ledger) -> None:
    send = make_send(ledger, count=3)
    put_rows(ledger, send.id, [1, 2, 3], "sent")
    put_send(ledger, send.id, SendStatus.COMPLETED)
    with ledger.autocommit() as connection:
        connection.execute("""UPDATE send SET settled_counts = '{"email": {"sent": 3}}'""")
        connection.execute("DELETE FROM batch")
        connection.execute("DELETE FROM delivery")
        [line] = books.lines(connection)
        assert (line.books.accepted, line.books.sent, line.books.unaccounted) == (3, 3, 0)
        assert books.sends_out_of_balance(connection, limit=9) == []
        connection.execute("""UPDATE send SET settled_counts = '{"email": {"sent": 2}}'""")
        [line] = books.lines(connection)
        assert line.books.unaccounted == 1
        [wrong] = books.sends_out_of_balance(connection, limit=9)
    assert (wrong.send_id, wrong.accepted, wrong.counted) == (send.id, 3, 2)


def test_a_lost_batch_a_lost_row_and_a_row_in_another_state_are_named(ledger: Ledger) -> None:
    no_batch, no_row, other_state = (make_send(ledger, count=50) for _ in range(3))
    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM batch WHERE send_id = %s AND batch_no = 1", [no_batch.id])
        connection.execute("DELETE FROM delivery WHERE send_id = %s AND row_no = 7", [no_row.id])
        connection.execute(
            "UPDATE delivery SET status = 'sent', settled_at = now() WHERE send_id = %s AND row_no = 30",
            [other_state.id],
        )
        [out] = books.sends_out_of_balance(connection, limit=9)
        assert (out.send_id, out.accepted, out.counted) == (no_batch.id, 50, 25)
        assert sum(line.books.unaccounted for line in books.lines(connection)) == 25
        without_batch = books.deliveries_out_of_balance(connection, no_batch.id, limit=99)
        without_row = books.deliveries_out_of_balance(connection, no_row.id, limit=99)
        changed = books.deliveries_out_of_balance(connection, other_state.id, limit=99)
    assert [each.id for each in without_batch] == [f"{no_batch.id}.{n}" for n in range(26, 51)]
    assert (f"{no_row.id}.7", "it has no row") in [(each.id, each.why) for each in without_row]
    assert (f"{other_state.id}.30", "its batch does not count it as sent") in [(e.id, e.why) for e in changed]


def test_there_are_no_books_of_a_send_that_does_not_exist(ledger: Ledger) -> None:
    make_send(ledger)
    with ledger.autocommit() as connection:
        assert books.lines(connection, send_id=uuid4()) == []
