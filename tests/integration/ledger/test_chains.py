"""Chains: who may start, take up, hand over and keep one, and how the lost are found."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.ledger import chains
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, key
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import one, put_rows, put_send, scalar

pytestmark = pytest.mark.usefixtures("balanced")
FIRST = UUID(int=0)


@pytest.fixture
def send(ledger: Ledger) -> MadeSend:
    return make_send(ledger, count=3, batch_size=1, status=SendStatus.SENDING)


@pytest.fixture
def token(ledger: Ledger, send: MadeSend) -> UUID:
    """A chain whose message is queued under this token."""
    token = uuid4()
    with ledger.autocommit() as connection:
        assert chains.put(connection, key(send), token=token, old_token=None)
    return token


def begin(ledger: Ledger, send: MadeSend, token: UUID, hand: Hand) -> bool:
    with ledger.autocommit() as connection:
        return chains.begin(connection, key(send), token=token, worker=hand.worker)


def test_a_chain_that_exists_is_not_put_a_second_time(ledger: Ledger, send: MadeSend, token: UUID) -> None:
    with ledger.autocommit() as connection:
        assert not chains.put(connection, key(send), token=uuid4(), old_token=None)
        assert not chains.put(connection, key(send), token=uuid4(), old_token=uuid4())
    assert scalar(ledger, "SELECT token FROM chain") == token


def test_a_chain_is_replaced_only_by_whoever_knows_its_token(ledger: Ledger, send: MadeSend, token: UUID) -> None:
    new = uuid4()
    with ledger.autocommit() as connection:
        assert chains.put(connection, key(send), token=new, old_token=token)
        assert not chains.put(connection, key(send), token=uuid4(), old_token=token)
    assert scalar(ledger, "SELECT token FROM chain") == new


def test_of_many_that_put_a_chain_at_once_one_does(ledger: Ledger, send: MadeSend) -> None:
    def put(_: int) -> bool:
        with ledger.autocommit() as connection:
            return chains.put(connection, key(send), token=uuid4(), old_token=None)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1


def test_a_message_is_taken_up_once_while_its_worker_lives(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand, other: Hand
) -> None:
    hand.register()
    other.register()
    assert begin(ledger, send, token, hand)
    assert not begin(ledger, send, token, other)
    assert not begin(ledger, send, token, hand)


def test_the_message_of_a_dead_worker_is_taken_up_by_another(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand, other: Hand
) -> None:
    hand.register()
    other.register()
    begin(ledger, send, token, hand)
    hand.die()
    assert begin(ledger, send, token, other)
    assert scalar(ledger, "SELECT holder FROM chain") == other.worker


def test_a_stale_message_is_not_taken_up(ledger: Ledger, send: MadeSend, token: UUID, hand: Hand) -> None:
    hand.register()
    with ledger.autocommit() as connection:
        chains.put(connection, key(send), token=uuid4(), old_token=token)
    assert not begin(ledger, send, token, hand)


def test_a_message_of_a_chain_that_ended_is_not_taken_up(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand
) -> None:
    hand.register()
    with ledger.autocommit() as connection:
        chains.end(connection, key(send), token=token)
    assert not begin(ledger, send, token, hand)


def test_a_chain_is_ended_only_by_its_current_token(ledger: Ledger, send: MadeSend, token: UUID) -> None:
    with ledger.autocommit() as connection:
        chains.end(connection, key(send), token=uuid4())
    assert scalar(ledger, "SELECT count(*) FROM chain") == 1


def test_only_the_holder_hands_its_chain_over_and_only_once(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand, other: Hand
) -> None:
    hand.register()
    begin(ledger, send, token, hand)
    new = uuid4()
    with ledger.autocommit() as connection:
        assert not chains.hand_over(connection, key(send), token=token, new_token=new, worker=other.worker)
        assert chains.hand_over(connection, key(send), token=token, new_token=new, worker=hand.worker)
        assert not chains.hand_over(connection, key(send), token=token, new_token=uuid4(), worker=hand.worker)
    row = one(ledger, "SELECT * FROM chain")
    assert (row["token"], row["holder"], row["started_at"]) == (new, None, None)


def test_a_chain_handed_over_in_vain_is_taken_back_unless_its_successor_has_begun(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand, other: Hand
) -> None:
    hand.register()
    other.register()
    begin(ledger, send, token, hand)
    second, third = uuid4(), uuid4()
    with ledger.autocommit() as connection:
        chains.hand_over(connection, key(send), token=token, new_token=second, worker=hand.worker)
        assert chains.keep(connection, key(send), token=second, worker=hand.worker)
        chains.hand_over(connection, key(send), token=second, new_token=third, worker=hand.worker)
        assert chains.begin(connection, key(send), token=third, worker=other.worker)
        assert not chains.keep(connection, key(send), token=third, worker=hand.worker)


def test_chains_are_found_with_whether_they_run_and_whether_their_holder_lives(
    ledger: Ledger, send: MadeSend, token: UUID, hand: Hand
) -> None:
    def look() -> chains.ChainState:
        with ledger.autocommit() as connection:
            [state] = chains.find(connection, [send.id])
        return state

    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET queued_at = now() - interval '40 seconds'")
    state = look()
    assert (state.key, state.token, state.running, state.holder_lives) == (key(send), token, False, False)
    assert state.queued_s == pytest.approx(40, abs=5)
    hand.register()
    begin(ledger, send, token, hand)
    assert (look().running, look().holder_lives) == (True, True)
    hand.die()
    assert (look().running, look().holder_lives) == (True, False)


def test_due_sends_are_found_by_channel_with_their_batches_counted_up_to_a_limit(
    ledger: Ledger, send: MadeSend
) -> None:
    sms = make_send(
        ledger, channel=Channel.SMS, lane=Lane.SINGLE, mode=Mode.TEST, count=2, batch_size=1, status=SendStatus.SENDING
    )
    with ledger.autocommit() as connection:
        assert chains.find_due(connection, after=FIRST, most=2, limit=9) == [
            chains.DueSend(send.id, Lane.BULK, Mode.LIVE, Channel.EMAIL, 2),
            chains.DueSend(sms.id, Lane.SINGLE, Mode.TEST, Channel.SMS, 2),
        ]
        assert [due.send_id for due in chains.find_due(connection, after=send.id, most=2, limit=9)] == [sms.id]
        assert [due.send_id for due in chains.find_due(connection, after=FIRST, most=2, limit=1)] == [send.id]


@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SendStatus.SENDING])
def test_a_send_that_is_not_being_sent_is_not_due(ledger: Ledger, send: MadeSend, status: SendStatus) -> None:
    if status in (SendStatus.COMPLETED, SendStatus.CANCELLED):
        put_rows(ledger, send.id, [1, 2, 3], "sent")
    put_send(ledger, send.id, status)
    with ledger.autocommit() as connection:
        assert chains.find_due(connection, after=FIRST, most=9, limit=9) == []


def test_a_send_whose_batches_are_held_or_not_due_is_not_due(ledger: Ledger, send: MadeSend, hand: Hand) -> None:
    put_rows(ledger, send.id, [3], "retrying", due_in="1 minute")
    hand.register()
    hand.lease(send)
    with ledger.autocommit() as connection:
        assert chains.find_due(connection, after=FIRST, most=9, limit=9) == []


def test_the_content_of_a_send_comes_with_its_tenants_senders_and_since_when_it_is_owed(ledger: Ledger) -> None:
    send = make_send(ledger, age="2 hours", send_at="-1 hour")
    with ledger.autocommit() as connection:
        found = chains.load_send(connection, send.id)
        assert chains.load_send(connection, uuid4()) is None
    assert found is not None
    assert (found.id, found.mode, found.lane) == (send.id, Mode.LIVE, Lane.BULK)
    assert (found.email_from, found.sms_from) == ("Acme <news@example.com>", None)
    assert found.accepted == {"email": 1}
    assert (found.owed_since - found.created_at).total_seconds() == pytest.approx(3600, abs=1)
