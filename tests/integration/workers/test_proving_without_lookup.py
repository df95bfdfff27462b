"""Unsure calls at providers that cannot be asked by our key: repeated, awaited, listed, or parked with the evidence."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from threading import Thread

import pytest

from shared.domain.ids import delivery_key
from shared.domain.states import Channel, Mode, SendStatus
from shared.ledger import receipts
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.integration.workers.test_proving import age
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import attempts, break_rows, delivery, one, put_rows, scalar
from tests.support.scripted_http import CLOSE, RESET, Received, ScriptedHttp, Step, answer, form
from tests.support.scripted_smtp import ACCEPT_THEN, ScriptedSmtp, scripted_smtp
from tests.support.waiting import wait_until
from workers.actors.senders import Senders

NUMBER = "+16045550101"
LIST = "/2010-04-01/Accounts/AC0001/Messages.json"


def sms(ledger: Ledger) -> MadeSend:
    return make_send(ledger, addresses=[NUMBER], channel=Channel.SMS, status=SendStatus.SENDING)


@pytest.fixture
def acs(make_worker: MakeWorker, provider: ScriptedHttp) -> InProcess:
    return make_worker(
        sms_provider="acs",
        acs_endpoint=provider.url,
        acs_access_key=base64.b64encode(b"0123456789abcdef").decode(),
        acs_from="+18335550100",
        acs_webhook_secret="a-secret-of-event-grid",
        acs_timeout_ms=2_000,
    )


@pytest.fixture
def twilio(make_worker: MakeWorker, provider: ScriptedHttp) -> InProcess:
    return make_worker(
        sms_provider="twilio",
        twilio_base_url=provider.url,
        twilio_account_sid="AC0001",
        twilio_auth_token="t0ken",
        twilio_from="+16045550100",
        twilio_timeout_ms=2_000,
        public_url="https://tidings.example.com",
    )


def taken_by_acs(request: Received) -> Step:
    return answer(202, {"value": [{"to": NUMBER, "messageId": "acs-1", "httpStatusCode": 202}]})


def test_a_call_to_azure_is_repeated_under_the_same_ids_and_counted_once(
    ledger: Ledger, acs: InProcess, provider: ScriptedHttp
) -> None:
    provider.once("/sms", [RESET])
    provider.always("/sms", taken_by_acs)
    send = sms(ledger)
    acs.run(send)
    assert counts(ledger, send.id) == {"unsure": 1}
    age(ledger, "10 seconds")
    with ledger.autocommit() as connection:  # the moment of the call itself is what a repeat carries
        connection.execute("UPDATE delivery SET last_attempt_at = last_attempt_at + interval '10 seconds'")
    acs.prove()
    row = delivery(ledger, send.id)
    assert (row["status"], row["provider_ref"], row["attempt_count"]) == ("sent", "acs-1", 1)
    first, repeat = provider.posts("/sms")
    assert first.body == repeat.body


def test_after_azures_window_a_report_is_waited_for_then_a_person_is_asked_and_the_report_still_wins(
    ledger: Ledger, acs: InProcess, provider: ScriptedHttp
) -> None:
    provider.always("/sms", [RESET])
    send = sms(ledger)
    acs.run(send)
    age(ledger, "5 minutes")
    acs.prove()
    assert len(provider.posts("/sms")) == 1
    row = delivery(ledger, send.id)
    assert (row["status"], row["prove_at"] is not None) == ("unsure", True)
    age(ledger, "5 minutes")
    acs.prove()
    acs.tick()
    assert delivery(ledger, send.id)["prove_at"] is None
    assert send_status(ledger, send.id) == "completed"
    assert len(provider.posts("/sms")) == 1

    with ledger.autocommit() as connection:
        reported = receipts.find_reported(connection, send_id=send.id, first_row=1, last_row=1, epoch=0, address=NUMBER)
        assert reported is not None
        receipts.keep(connection, reported, provider="acs", ref="acs-9", status="delivered", code="2000")
    acs.prove()
    acs.tick()
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"]) == ("sent", "delivered")
    assert send_status(ledger, send.id) == "completed"
    assert one(ledger, "SELECT settled_counts FROM send")["settled_counts"]["sms"]["sent"] == 1


def listed(sid: str = "SM7") -> dict[str, object]:
    return {
        "sid": sid,
        "to": NUMBER,
        "from": "+16045550100",
        "body": "Dear you",
        "status": "undelivered",
        "date_created": format_datetime(datetime.now(UTC)),
    }


@pytest.fixture
def unsure_at_twilio(ledger: Ledger, twilio: InProcess, provider: ScriptedHttp) -> MadeSend:
    provider.once(LIST, [RESET])
    send = sms(ledger)
    twilio.run(send)
    assert counts(ledger, send.id) == {"unsure": 1}
    return send


def call_is_older(ledger: Ledger) -> None:
    """Let the wait for a callback be over, and the call have been made just now, for the list's sake."""
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET prove_at = now() - interval '1 second' WHERE prove_at IS NOT NULL")
        connection.execute("UPDATE batch SET prove_at = now() - interval '1 second' WHERE prove_at IS NOT NULL")


def test_twilios_list_is_looked_through_once_no_callback_came(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    twilio.prove()
    [request] = provider.posts(LIST)
    assert form(request)["StatusCallback"].startswith(
        f"https://tidings.example.com/api/v1/receipts/twilio?delivery={unsure_at_twilio.id}.1&key="
    )
    provider.always(LIST, answer(200, {"messages": [listed()]}))
    call_is_older(ledger)
    twilio.prove()
    row = delivery(ledger, unsure_at_twilio.id)
    assert (row["status"], row["provider_ref"], row["receipt_status"]) == ("sent", "SM7", "undelivered")


def test_a_listed_message_that_is_another_deliverys_proves_nothing(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    other = sms(ledger)
    put_rows(ledger, other.id, [1], "sent", attempts=1)
    with ledger.autocommit() as connection:
        reported = receipts.find_delivery(connection, send_id=other.id, row_no=1)
        assert reported is not None
        receipts.keep(connection, reported, provider="twilio", ref="SM7", status="sent", code=None)
    provider.always(LIST, answer(200, {"messages": [listed()]}))
    call_is_older(ledger)
    twilio.prove()
    row = delivery(ledger, unsure_at_twilio.id)
    assert (row["status"], row["prove_at"], row["provider_ref"]) == ("unsure", None, None)


def test_a_listed_message_that_another_call_was_answered_with_proves_nothing(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    provider.always(LIST, answer(201, {"sid": "SM7"}))
    other = sms(ledger)
    twilio.run(other)
    assert delivery(ledger, other.id)["provider_ref"] == "SM7"
    provider.always(LIST, answer(200, {"messages": [listed()]}))
    call_is_older(ledger)
    twilio.prove()
    row = delivery(ledger, unsure_at_twilio.id)
    assert (row["status"], row["prove_at"], row["provider_ref"]) == ("unsure", None, None)


def test_of_two_that_look_alike_one_listed_message_proves_one(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    provider.once(LIST, [RESET])
    other = sms(ledger)
    twilio.run(other)
    provider.always(LIST, answer(200, {"messages": [listed()]}))
    call_is_older(ledger)
    twilio.prove()
    rows = [delivery(ledger, send.id) for send in (unsure_at_twilio, other)]
    assert sorted((row["status"], row["prove_at"]) for row in rows) == [("sent", None), ("unsure", None)]


def test_a_message_that_is_found_to_be_anothers_at_this_moment_proves_nothing(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    other = sms(ledger)
    put_rows(ledger, other.id, [1], "sent", attempts=1)
    provider.always(LIST, answer(200, {"messages": [listed()]}))
    call_is_older(ledger)
    prover = Thread(target=twilio.prove)
    with ledger.transaction() as connection:
        reported = receipts.find_delivery(connection, send_id=other.id, row_no=1)
        assert reported is not None
        assert not receipts.is_of_another(connection, ref="SM7", send_id=other.id, row_no=1)
        prover.start()
        wait_until(lambda: scalar(ledger, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        receipts.keep(connection, reported, provider="twilio", ref="SM7", status="sent", code=None)
    prover.join()
    assert delivery(ledger, unsure_at_twilio.id)["status"] == "unsure"


def test_a_report_that_cannot_be_applied_keeps_no_other_from_its_turn(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    provider.once(LIST, [RESET])
    whole = sms(ledger)
    twilio.run(whole)
    break_rows(ledger, unsure_at_twilio.id)
    with ledger.autocommit() as connection:
        for send in (unsure_at_twilio, whole):
            reported = receipts.find_delivery(connection, send_id=send.id, row_no=1)
            assert reported is not None
            receipts.keep(connection, reported, provider="twilio", ref=str(send.id), status="sent", code=None)
    twilio.prove()
    assert [delivery(ledger, send.id)["status"] for send in (unsure_at_twilio, whole)] == ["unsure", "sent"]


def test_a_message_that_is_not_in_twilios_list_is_parked_and_never_sent_again(
    ledger: Ledger, twilio: InProcess, provider: ScriptedHttp, unsure_at_twilio: MadeSend
) -> None:
    provider.always(LIST, answer(200, {"messages": []}))
    call_is_older(ledger)
    twilio.prove()
    twilio.tick()
    twilio.work_off()
    row = delivery(ledger, unsure_at_twilio.id)
    assert (row["status"], row["prove_at"], row["attempt_count"]) == ("unsure", None, 1)
    assert send_status(ledger, unsure_at_twilio.id) == "completed"
    assert [request.method for request in provider.posts(LIST)] == ["POST", "GET"]
    assert attempts(ledger, unsure_at_twilio.id)[-1]["evidence"]["alike"] == "0"


@pytest.fixture
def relay() -> Iterator[ScriptedSmtp]:
    with scripted_smtp() as relay:
        yield relay


@pytest.fixture
def smtp(make_worker: MakeWorker, relay: ScriptedSmtp) -> InProcess:
    return make_worker(
        email_provider="smtp", smtp_host="127.0.0.1", smtp_port=relay.port, smtp_security="none", smtp_timeout_ms=2_000
    )


def test_an_answer_lost_after_the_dot_is_parked_at_once_with_stage_relay_and_message_id(
    ledger: Ledger, smtp: InProcess, relay: ScriptedSmtp
) -> None:
    relay.once("dot", [ACCEPT_THEN, CLOSE])
    send = make_send(ledger, status=SendStatus.SENDING)
    smtp.run(send)
    row = delivery(ledger, send.id)
    assert (row["status"], row["prove_at"]) == ("unsure", None)
    assert send_status(ledger, send.id) == "completed"
    [attempt] = attempts(ledger, send.id)
    assert attempt["evidence"]["stage"] == "dot"
    assert attempt["evidence"]["relay"] == f"127.0.0.1:{relay.port}"
    assert f"Message-ID: <{attempt['evidence']['message_id']}@".encode() in relay.taken[0].content
    smtp.tick()
    smtp.prove()
    smtp.work_off()
    assert len(relay.taken) == 1


def test_a_look_that_asks_nobody_is_no_probe_of_the_circuit(
    ledger: Ledger, make_worker: MakeWorker, relay: ScriptedSmtp
) -> None:
    worker = make_worker(
        email_provider="smtp",
        smtp_host="127.0.0.1",
        smtp_port=relay.port,
        smtp_security="none",
        circuit_reset_ms=1_000,
    )
    send = make_send(ledger, status=SendStatus.SENDING)
    hand = Hand(ledger)
    hand.take(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET provider = 'smtp', credential = %s", [worker.credential()])
    hand.die()
    circuit = Senders(worker.runtime).sender(Channel.EMAIL, Mode.LIVE).guards.circuit
    circuit.report(circuit.require(), failures=5)
    worker.tick()

    def parked() -> bool:
        call_is_older(ledger)
        worker.prove()
        return delivery(ledger, send.id)["prove_at"] is None

    wait_until(parked)
    assert circuit.snapshot().state == "open"


def test_a_dead_workers_calls_to_a_relay_are_parked_with_what_its_log_can_be_searched_by(
    ledger: Ledger, smtp: InProcess, relay: ScriptedSmtp
) -> None:
    send = make_send(ledger, count=2, status=SendStatus.SENDING)
    hand = Hand(ledger)
    hand.take(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET provider = 'smtp', credential = %s", [smtp.credential()])
    hand.die()
    smtp.tick()
    smtp.prove()
    assert counts(ledger, send.id) == {"unsure": 2}
    assert delivery(ledger, send.id)["prove_at"] is None
    evidence = [attempt["evidence"] for attempt in attempts(ledger, send.id)]
    assert "worker" in evidence[0]
    assert {"relay", "proof_of_claim"} <= set(evidence[1])
    assert evidence[1]["message_id"] == str(delivery_key(send.id, 1, 0))
    smtp.tick()
    assert send_status(ledger, send.id) == "completed"
    assert relay.taken == []
