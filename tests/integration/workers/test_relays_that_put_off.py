"""Relays that put mail off, from the first try to the last: greylisting, a rate, a day's quota, no relaying at all."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from shared.domain.states import Channel, Mode, SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import delivery, make_due, scalar
from tests.support.scripted_http import Step
from tests.support.scripted_smtp import ScriptedSmtp, scripted_smtp
from workers.actors.senders import Senders

GREYLISTED = b"450 4.2.0 greylisted, try again later\r\n"
#: Calls of one window, and so what one refusal may cost at most.
CAP = 20


@pytest.fixture
def relay() -> Iterator[ScriptedSmtp]:
    with scripted_smtp() as relay:
        yield relay


@pytest.fixture
def worker(make_worker: MakeWorker, relay: ScriptedSmtp) -> InProcess:
    return make_worker(
        email_provider="smtp",
        smtp_host="127.0.0.1",
        smtp_port=relay.port,
        smtp_security="none",
        smtp_max_concurrent_requests=CAP,
    )


def sending(ledger: Ledger, count: int) -> MadeSend:
    return make_send(ledger, count=count, status=SendStatus.SENDING)


def waits_min(ledger: Ledger, send: MadeSend) -> float:
    """Minutes until the first delivery of a send is tried again."""
    wait = "SELECT extract(epoch FROM next_attempt_at - last_attempt_at)::float8 / 60 FROM delivery WHERE send_id = %s"
    return float(scalar(ledger, f"{wait} AND row_no = 1", send.id))


def test_mail_that_is_greylisted_for_twelve_minutes_goes_with_the_third_try(
    ledger: Ledger, worker: InProcess, relay: ScriptedSmtp
) -> None:
    relay.once("rcpt", GREYLISTED, GREYLISTED)
    send = sending(ledger, 1)
    tried_at_min = 0.0
    while counts(ledger, send.id) != {"sent": 1}:
        worker.run(send)
        if not relay.taken:
            assert tried_at_min < 12
            tried_at_min += waits_min(ledger, send)
            make_due(ledger)
    assert 15 <= tried_at_min <= 18
    assert delivery(ledger, send.id)["attempt_count"] == 3


def test_greylisting_for_ever_ends_in_dead_letters_and_stops_nobody_else(
    ledger: Ledger, worker: InProcess, relay: ScriptedSmtp
) -> None:
    relay.always("rcpt", GREYLISTED)
    send = sending(ledger, 8)
    waits = []
    for _ in range(4):
        worker.run(send)
        waits.append(waits_min(ledger, send))
        make_due(ledger)
    assert waits == pytest.approx([6, 12, 24, 48], rel=0.2)
    worker.run(send)
    assert counts(ledger, send.id) == {"dead_lettered": 8}
    assert send_status(ledger, send.id) == "completed"
    assert relay.commands.count("DATA") == 0
    relay.always("rcpt", b"250 ok\r\n")
    other = sending(ledger, 3)
    worker.run(other)  # forty refusals of recipients in a row have not opened the circuit
    assert counts(ledger, other.id) == {"sent": 3}


def test_a_relay_that_is_too_fast_for_every_third_message_gets_all_of_them_once(
    ledger: Ledger, worker: InProcess, relay: ScriptedSmtp
) -> None:
    numbers = count(1)

    def dot() -> Step:
        number = next(numbers)
        return [b"454 Throttling failure: Maximum sending rate exceeded\r\n" if number % 3 == 0 else b"250 ok\r\n"]

    relay.always("dot", dot)
    send = sending(ledger, 60)
    rounds = 0
    while counts(ledger, send.id) != {"sent": 60}:
        worker.run(send)
        tried = relay.commands.count("DATA")
        worker.run(send)
        assert relay.commands.count("DATA") == tried  # told to slow down: nobody asks before the half minute is over
        assert worker.pass_gate(Channel.EMAIL) <= 30
        make_due(ledger)
        rounds += 1
        assert rounds < 40
    assert set(Counter(taken.recipient for taken in relay.taken).values()) == {1}
    assert len(relay.taken) == 60
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 60


def test_a_day_without_quota_costs_one_window_an_hour_and_no_attempt(
    ledger: Ledger, worker: InProcess, relay: ScriptedSmtp
) -> None:
    relay.always("dot", b"454 Throttling failure: Daily message quota exceeded\r\n")
    send = sending(ledger, 300)
    for hour in range(1, 11):
        worker.run(send)
        worker.run(send)
        assert relay.commands.count("DATA") <= hour * CAP
        assert 3_000 < worker.pass_gate(Channel.EMAIL) <= 3_600
        make_due(ledger)
    assert counts(ledger, send.id) == {"owed": 300}
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 0
    relay.always("dot", b"250 ok\r\n")
    worker.run(send)
    assert counts(ledger, send.id) == {"sent": 300}
    assert set(Counter(taken.recipient for taken in relay.taken).values()) == {1}


@pytest.mark.parametrize("refusal", [b"550 relay not permitted\r\n", b"554 5.7.1 Relay access denied\r\n"])
def test_a_relay_that_carries_no_mail_of_ours_fails_four_and_holds_the_rest_until_it_does(
    ledger: Ledger, worker: InProcess, relay: ScriptedSmtp, refusal: bytes
) -> None:
    circuit = Senders(worker.runtime).sender(Channel.EMAIL, Mode.LIVE).guards.circuit
    relay.always("rcpt", refusal)
    send = sending(ledger, 60)
    for look in range(2):
        worker.run(send)
        worker.run(send)
        assert counts(ledger, send.id) == {"failed": 4, "owed": 56}
        assert sum(line.startswith("RCPT") for line in relay.commands) <= CAP + look
        assert circuit.look_again()
    assert scalar(ledger, "SELECT configuration_error FROM provider_state").startswith("smtp_relay_denied: ")
    relay.always("rcpt", b"250 ok\r\n")
    worker.run(send)
    assert counts(ledger, send.id) == {"failed": 4, "sent": 56}
