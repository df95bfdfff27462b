"""Providers' reports: early, late, twice, out of order, forged."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient

from admin.api.twilio_signature import sign
from shared.domain.ids import delivery_key
from shared.domain.states import Channel, DeliveryStatus, SendStatus
from shared.ledger import chains, deliveries, providers, receipts
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.integration.api.conftest import make_settings
from tests.integration.api.provider_reports import (
    NUMBER,
    PUBLIC,
    SECRET,
    TOKEN,
    called_back,
    put_provider,
    reported,
    sent,
    settings_for_reports,
)
from tests.integration.ledger.hand import Hand, ended
from tests.support.books import assert_books_balance
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import attempts, delivery, one, put_outage, put_rows, put_send, scalar
from tests.support.waiting import wait_until


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return settings_for_reports(make_settings(database_url, redis_url))


@pytest.fixture
def client(app: Flask, ledger: Ledger) -> Iterator[FlaskClient]:
    yield app.test_client()
    assert_books_balance(ledger)


@pytest.fixture
def send(ledger: Ledger) -> MadeSend:
    return make_send(ledger, addresses=[NUMBER, "+16045550102"], channel=Channel.SMS, status=SendStatus.SENDING)


def test_the_signature_is_that_of_twilios_own_example() -> None:
    form = {
        "CallSid": ["CA1234567890ABCDE"],
        "Caller": ["+12349013030"],
        "Digits": ["1234"],
        "From": ["+12349013030"],
        "To": ["+18005551212"],
    }
    assert sign("https://mycompany.com/myapp.php?foo=1&bar=2", form, token="12345") == "0/KCTR6DLpKmkAf8muzZqo1nDgQ="


def test_a_receipt_of_a_sent_message_is_kept_and_moves_its_state_at_the_provider(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    sent(ledger, send)
    response = called_back(client, send, "delivered")
    assert (response.status_code, response.get_json()) == (200, {"kept": True})
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], row["provider_ref"]) == ("sent", "delivered", "SM1")
    kept = one(ledger, "SELECT * FROM receipt")
    assert (kept["status"], kept["provider_ref"], kept["code"]) == ("delivered", "SM1", None)
    assert kept["applied_at"] is not None


@pytest.mark.parametrize("signed_for", [PUBLIC, f"{PUBLIC}:443"])
def test_twilio_may_sign_the_address_with_its_port_or_without(
    ledger: Ledger, client: FlaskClient, send: MadeSend, signed_for: str
) -> None:
    sent(ledger, send)
    assert called_back(client, send, "delivered", signed_for=signed_for).status_code == 200


def test_a_public_address_with_a_port_may_be_signed_without(
    ledger: Ledger, make_app: Any, settings: Settings, send: MadeSend
) -> None:
    client = make_app(settings.model_copy(update={"public_url": f"{PUBLIC}:8443/behind"})).test_client()
    for base in (f"{PUBLIC}/behind", f"{PUBLIC}:8443/behind"):
        assert called_back(client, send, "queued", signed_for=base).status_code == 200
    assert called_back(client, send, "queued").status_code == 403


@pytest.mark.parametrize(
    "forged",
    [
        {"signature": ""},
        {"signature": "bm90aGluZw=="},
        {"signature": "é"},
        {"token": "another"},
        {"signed_for": "https://elsewhere.example.com"},
        {"signed_for": "http://tidings.example.com"},
    ],
    ids=str,
)
def test_a_forged_callback_is_refused_and_changes_nothing(
    ledger: Ledger, client: FlaskClient, send: MadeSend, forged: dict[str, str]
) -> None:
    put_rows(ledger, send.id, [1], "unsure", attempts=1)
    put_provider(ledger)
    response = called_back(client, send, "delivered", **forged)  # type: ignore[arg-type]
    assert response.status_code == 403
    assert response.mimetype == "application/problem+json"
    assert delivery(ledger, send.id)["status"] == "unsure"
    assert scalar(ledger, "SELECT count(*) FROM receipt") == 0


def test_a_field_that_was_changed_on_the_way_breaks_the_signature(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    sent(ledger, send)
    query = f"delivery={send.id}.1&key={delivery_key(send.id, 1, 0)}"
    url = f"{PUBLIC}/api/v1/receipts/twilio?{query}"
    signed = sign(url, {"MessageSid": ["SM1"], "MessageStatus": ["failed"]}, token=TOKEN)
    for path, form in (
        (query, {"MessageSid": "SM1", "MessageStatus": "delivered"}),
        (query.replace(".1&", ".2&"), {"MessageSid": "SM1", "MessageStatus": "failed"}),
    ):
        response = client.post(f"/api/v1/receipts/twilio?{path}", data=form, headers={"X-Twilio-Signature": signed})
        assert response.status_code == 403


@pytest.mark.parametrize("missing", ["public_url", "twilio_auth_token"])
def test_without_the_settings_nothing_can_be_signed(
    ledger: Ledger, make_app: Any, settings: Settings, send: MadeSend, missing: str
) -> None:
    client = make_app(settings.model_copy(update={missing: None})).test_client()
    assert called_back(client, send, "delivered").status_code == 403


def test_receipts_out_of_order_and_twice_only_move_the_state_forward(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    sent(ledger, send)
    seen = []
    for status in ("sending", "queued", "delivered", "sent", "delivered", "failed", "undelivered", "sending"):
        assert called_back(client, send, status).status_code == 200
        seen.append(delivery(ledger, send.id)["receipt_status"])
    assert seen == ["sending", "sending", *["delivered"] * 6]
    assert scalar(ledger, "SELECT count(*) FROM receipt") == 6


def test_a_delivery_told_after_a_failure_counts(ledger: Ledger, client: FlaskClient, send: MadeSend) -> None:
    sent(ledger, send)
    for status in ("failed", "undelivered"):
        called_back(client, send, status, ErrorCode="30003")
        assert delivery(ledger, send.id)["receipt_status"] == "failed"
    called_back(client, send, "delivered")
    assert delivery(ledger, send.id)["receipt_status"] == "delivered"
    assert delivery(ledger, send.id)["status"] == "sent"


def test_an_unknown_word_is_kept_and_moves_nothing(ledger: Ledger, client: FlaskClient, send: MadeSend) -> None:
    sent(ledger, send)
    assert called_back(client, send, "vaporised", ErrorCode="39999").get_json() == {"kept": True}
    assert delivery(ledger, send.id)["receipt_status"] is None
    assert one(ledger, "SELECT * FROM receipt")["code"] == "39999"


@pytest.mark.parametrize("prove_in", ["10 minutes", None], ids=["being-proved", "parked"])
@pytest.mark.parametrize("status", ["queued", "delivered", "failed", "undelivered"])
def test_a_receipt_of_any_state_proves_that_an_unsure_message_was_taken(
    ledger: Ledger, client: FlaskClient, send: MadeSend, status: str, prove_in: str | None
) -> None:
    put_rows(ledger, send.id, [1], "unsure", attempts=1, prove_in=prove_in)
    put_rows(ledger, send.id, [2], "sent", attempts=1)
    put_provider(ledger)
    if prove_in is None:
        put_send(ledger, send.id, SendStatus.COMPLETED)
        with ledger.autocommit() as connection:
            connection.execute('UPDATE send SET settled_counts = \'{"sms": {"sent": 1, "unsure": 1}}\'')
    put_outage(ledger, "a1", provider="twilio", since="1 hour")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET credential = 'a1'")
    called_back(client, send, status, ErrorCode="30008")
    assert scalar(ledger, "SELECT last_accepted_at > refused_since FROM provider_state")
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], row["provider_ref"]) == ("sent", status, "SM1")
    assert (row["attempt_count"], row["claim_id"], row["prove_at"]) == (1, None, None)
    assert attempts(ledger, send.id)[-1]["code"] == "proved_by_receipt"
    assert send_status(ledger, send.id) == "sending"
    assert scalar(ledger, "SELECT settled_counts FROM send") is None
    assert Hand(ledger).complete(send)


def test_a_receipt_locks_the_providers_state_after_the_suppression_list_as_windows_do(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_rows(ledger, send.id, [1], "unsure", attempts=1, prove_in="10 minutes")
    put_provider(ledger)
    put_outage(ledger, "a1", provider="twilio", since="1 hour")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET credential = 'a1'")
    tenant = scalar(ledger, "SELECT tenant_id FROM send")
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor() as pool:
        with ledger.transaction() as window:
            deliveries.suppress(window, tenant_id=tenant, channel=Channel.SMS, addresses=[NUMBER], reason="refused")
            receipt = pool.submit(called_back, client, send, "undelivered", ErrorCode="21610")
            wait_until(lambda: scalar(ledger, waiting), what="the receipt to wait for the list")
            providers.note_accepted(window, provider="twilio", credential="a1")
        assert receipt.result().get_json() == {"kept": True}
    assert delivery(ledger, send.id)["status"] == "sent"


def test_a_receipt_that_comes_before_the_calls_own_record_waits_for_it(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    hand = Hand(ledger)
    claim, rows = hand.take(send)
    claim = replace(claim, provider="twilio")
    put_provider(ledger)
    assert called_back(client, send, "sent").status_code == 200
    assert called_back(client, send, "delivered", row_no=2, MessageSid="SM2").status_code == 200
    assert counts(ledger, send.id) == {"sending": 2}
    assert apply_waiting(ledger) == [False, False]
    hand.record(claim, ended(rows[0], DeliveryStatus.SENT, ref="SM1"), ended(rows[1], DeliveryStatus.UNSURE))
    assert apply_waiting(ledger) == [True, True]
    assert [delivery(ledger, send.id, n)["receipt_status"] for n in (1, 2)] == ["sent", "delivered"]
    assert delivery(ledger, send.id, 2)["status"] == "sent"
    assert apply_waiting(ledger) == []
    hand.release(send)


def apply_waiting(ledger: Ledger) -> list[bool]:
    with ledger.autocommit() as connection:
        return [
            receipts.apply(connection, receipt) for receipt in receipts.find_waiting(connection, after=0, limit=100)
        ]


def test_a_receipt_that_comes_while_its_worker_is_dead_proves_the_call(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    hand = Hand(ledger)
    hand.take(send)
    put_provider(ledger)
    called_back(client, send, "delivered")
    hand.die()
    hand.free(send, looks={"twilio": 600.0})
    assert apply_waiting(ledger) == [True]
    assert counts(ledger, send.id) == {"sent": 1, "unsure": 1}


@pytest.mark.parametrize(
    "where",
    [
        "delivery=0190a1b2-0000-7000-8000-000000000001.1&key=x",
        "delivery=nonsense&key=x",
        "key=x",
        "",
        "delivery=0190a1b2-0000-7000-8000-000000000001.999999999999&key=x",
    ],
)
def test_a_callback_about_nothing_known_is_answered_and_leaves_no_row(
    ledger: Ledger, client: FlaskClient, where: str
) -> None:
    url = f"{PUBLIC}/api/v1/receipts/twilio" + (f"?{where}" if where else "")
    form = {"MessageStatus": "delivered"}
    signed = sign(url, {"MessageStatus": ["delivered"]}, token=TOKEN)
    response = client.post(f"/api/v1/receipts/twilio?{where}", data=form, headers={"X-Twilio-Signature": signed})
    assert (response.status_code, response.get_json()) == (200, {"kept": False})
    assert scalar(ledger, "SELECT count(*) FROM receipt") == 0


def test_a_receipt_of_a_message_before_a_requeue_is_not_one_of_the_message_after_it(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_rows(ledger, send.id, [1], "unsure", attempts=1)
    put_provider(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET epoch = 1 WHERE row_no = 1")
        connection.execute("UPDATE attempt SET epoch = 1")
    assert called_back(client, send, "delivered").get_json() == {"kept": False}
    assert delivery(ledger, send.id)["status"] == "unsure"
    assert called_back(client, send, "delivered", epoch=1).get_json() == {"kept": True}
    assert delivery(ledger, send.id)["status"] == "sent"


def test_a_recipient_who_opted_out_joins_the_suppression_list(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    sent(ledger, send)
    called_back(client, send, "undelivered", ErrorCode="30005")
    assert scalar(ledger, "SELECT count(*) FROM suppression") == 0
    called_back(client, send, "failed", ErrorCode="21610")
    row = one(ledger, "SELECT * FROM suppression")
    assert (row["address"], row["reason"]) == (NUMBER, "opted out, reported by twilio")


@pytest.mark.parametrize("status", ["failed", "dead_lettered", "suppressed", "cancelled", "expired"])
def test_a_receipt_of_a_delivery_that_is_settled_is_shown_on_it_and_changes_no_more(
    ledger: Ledger, client: FlaskClient, send: MadeSend, status: str
) -> None:
    put_rows(ledger, send.id, [1], status, attempts=1)
    put_provider(ledger)
    for said, shown in (("sent", "sent"), ("delivered", "delivered"), ("queued", "delivered")):
        assert called_back(client, send, said).get_json() == {"kept": True}
        row = delivery(ledger, send.id)
        assert (row["status"], row["receipt_status"], row["provider_ref"]) == (status, shown, "SM1")
    assert (len(attempts(ledger, send.id)), apply_waiting(ledger)) == (1, [])


@pytest.mark.parametrize("status", ["owed", "failed", "cancelled"])
def test_a_receipt_says_nothing_of_a_delivery_that_was_never_called(
    ledger: Ledger, client: FlaskClient, send: MadeSend, status: str
) -> None:
    put_rows(ledger, send.id, [1], status)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET provider = 'twilio', last_attempt_at = NULL")
    called_back(client, send, "delivered")
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], apply_waiting(ledger)) == (status, None, [])


@pytest.mark.parametrize("status", ["owed", "retrying"])
def test_a_receipt_of_a_call_that_seemed_to_come_to_nothing_spares_the_recipient_another(
    ledger: Ledger, client: FlaskClient, send: MadeSend, status: str
) -> None:
    put_rows(ledger, send.id, [1], status, attempts=1, due_in="5 minutes")
    put_provider(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET last_attempt_at = now() - interval '1 minute'")
    assert called_back(client, send, "delivered").get_json() == {"kept": True}
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], row["attempt_count"]) == ("sent", "delivered", 1)
    assert (row["next_attempt_at"], row["provider_ref"]) == (None, "SM1")
    assert attempts(ledger, send.id)[-1]["code"] == "proved_by_receipt"
    assert scalar(ledger, "SELECT settled_at FROM batch") is None  # the other recipient is still owed
    put_rows(ledger, send.id, [2], status, attempts=1)
    put_provider(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET last_attempt_at = now() WHERE row_no = 2")
    called_back(client, send, "sent", row_no=2, MessageSid="SM2")
    assert scalar(ledger, "SELECT settled_at IS NOT NULL AND due_at IS NULL FROM batch")
    with ledger.autocommit() as connection:
        assert chains.complete(connection, send.id)


def test_a_subscription_of_event_grid_is_validated(client: FlaskClient) -> None:
    event = {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "512d38b6"}}
    response = client.post("/api/v1/receipts/acs", json=[event], headers={"X-Tidings-Secret": SECRET})
    assert response.get_json()["validationResponse"] == "512d38b6"
    assert response.status_code == 200


def test_a_report_finds_its_delivery_by_the_tag_of_its_request_and_its_number(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_rows(ledger, send.id, [1, 2], "unsure", attempts=1, prove_in="1 minute")
    put_provider(ledger, "acs")
    response = reported(client, send, "Delivered", deliveryStatusDetails="2000: Message Delivered Successfully")
    assert (response.status_code, response.get_json()["kept"]) == (200, 1)
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], row["provider_ref"]) == ("sent", "delivered", "acs-1")
    assert delivery(ledger, send.id, 2)["status"] == "unsure"
    assert reported(client, send, "Delivered", deliveryStatusDetails="2000").get_json()["kept"] == 0
    reported(client, send, "Failed", deliveryStatusDetails="4007: opted out")
    assert delivery(ledger, send.id)["receipt_status"] == "delivered"
    assert scalar(ledger, "SELECT address FROM suppression") == NUMBER


@pytest.mark.parametrize(
    "more",
    [
        {"to": "+16045550199"},
        {"tag": None},
        {"tag": "nonsense"},
        {"tag": f"{UUID(int=1)}.1-2"},
        {"tag": "0190a1b2-0000-7000-8000-00000000000g.1-2"},
        {"tag": "-" * 36 + ".1-2"},
        {"deliveryStatus": None},
        {"deliveryStatus": "a\0b"},
    ],
    ids=str,
)
def test_a_report_of_nothing_known_is_answered_and_leaves_no_row(
    ledger: Ledger, client: FlaskClient, send: MadeSend, more: dict[str, Any]
) -> None:
    response = reported(client, send, "Delivered", **more)
    assert (response.status_code, response.get_json()["kept"]) == (200, 0)
    assert scalar(ledger, "SELECT count(*) FROM receipt") == 0


@pytest.mark.parametrize("body", [b"", b"{", b"1", b'"x"', b"null"])
def test_a_body_that_is_no_list_of_events_is_refused(client: FlaskClient, body: bytes) -> None:
    assert client.post(f"/api/v1/receipts/acs?secret={SECRET}", data=body).status_code == 400


@pytest.mark.parametrize("body", [b"[]", b"[1, null, {}]", b'[{"eventType": "x", "data": {}}]', b"{}"])
def test_events_of_other_kinds_are_passed_by(client: FlaskClient, body: bytes) -> None:
    response = client.post(f"/api/v1/receipts/acs?secret={SECRET}", data=body)
    assert (response.status_code, response.get_json()["kept"]) == (200, 0)


def test_a_report_without_the_secret_is_refused(
    ledger: Ledger, client: FlaskClient, make_app: Any, settings: Settings, send: MadeSend
) -> None:
    sent(ledger, send)
    for secret in ("", "wrong", "é"):
        assert reported(client, send, "Delivered", secret=secret).status_code == 403
    unset = make_app(settings.model_copy(update={"acs_webhook_secret": None})).test_client()
    assert reported(unset, send, "Delivered").status_code == 403
    assert reported(unset, send, "Delivered", secret="").status_code == 403
    assert scalar(ledger, "SELECT count(*) FROM receipt") == 0


def test_a_requeued_delivery_takes_reports_of_its_newest_message_only(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_rows(ledger, send.id, [1], "unsure", attempts=1)
    put_provider(ledger, "acs")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET epoch = 1 WHERE row_no = 1")
        connection.execute("UPDATE attempt SET epoch = 1")
    assert reported(client, send, "Failed").get_json()["kept"] == 0
    assert reported(client, send, "Delivered", messageId="acs-2", tag=f"{send.id}.1-2.1").get_json()["kept"] == 1
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"], row["provider_ref"]) == ("sent", "delivered", "acs-2")


def test_the_evidence_of_an_unsure_call_is_shown_with_its_attempt(api: Any, ledger: Ledger) -> None:
    send = make_send(ledger, status=SendStatus.SENDING)
    hand = Hand(ledger)
    claim, [row] = hand.take(send)
    hand.record(claim, ended(row, DeliveryStatus.UNSURE))
    hand.release(send)
    [attempt] = api.get(f"/deliveries/{send.id}.1").get_json()["attempts"]
    assert (attempt["outcome"], attempt["evidence"]) == ("ambiguous", {"status": "0"})
