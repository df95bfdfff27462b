"""Why a provider says that a message did not arrive: kept, and nothing else comes of it."""

from collections.abc import Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient

from shared.domain.states import Channel, SendStatus
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
)
from tests.support.books import assert_books_balance
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import delivery, one, scalar


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    plain = make_settings(database_url, redis_url)
    more = {"public_url": PUBLIC, "twilio_auth_token": TOKEN, "acs_webhook_secret": SECRET}
    return Settings(**{**plain.model_dump(exclude_unset=True), **more})


@pytest.fixture
def client(app: Flask, ledger: Ledger) -> Iterator[FlaskClient]:
    yield app.test_client()
    assert_books_balance(ledger)


@pytest.fixture
def send(ledger: Ledger) -> MadeSend:
    return make_send(ledger, addresses=[NUMBER, "+16045550102"], channel=Channel.SMS, status=SendStatus.SENDING)


@pytest.mark.parametrize("code", ["30003", "30005", "30006", "30007", "30008", "30034", "39999", None])
@pytest.mark.parametrize("status", ["undelivered", "failed"])
def test_every_reason_of_twilios_is_kept_sends_nothing_again_and_suppresses_nobody(
    ledger: Ledger, client: FlaskClient, send: MadeSend, status: str, code: str | None
) -> None:
    sent(ledger, send)
    called_back(client, send, status, **({} if code is None else {"ErrorCode": code}))
    assert one(ledger, "SELECT status, code FROM receipt") == {"status": status, "code": code}
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"]) == ("sent", status)
    assert scalar(ledger, "SELECT count(*) FROM suppression") == 0


@pytest.mark.parametrize(
    ("word", "details", "status"),
    [
        ("Delivered", "2000: Message Delivered Successfully", "delivered"),
        ("Failed", "4000: Sender is not allowed", "failed"),
        ("Failed", "4001: Sender is blocked", "failed"),
        ("Undeliverable", "4002: Number does not exist", "undelivered"),
        ("Expired", "4006: Destination is not reachable", "undelivered"),
        ("Rejected", "4008: Throttled", "failed"),
        ("Failed", "5000: Unknown", "failed"),
        ("Accepted", "5002: Delivered or not, unknown", "queued"),
    ],
)
def test_every_reason_of_azures_is_kept_sends_nothing_again_and_suppresses_nobody(
    ledger: Ledger, client: FlaskClient, send: MadeSend, word: str, details: str, status: str
) -> None:
    sent(ledger, send)
    put_provider(ledger, "acs")
    assert reported(client, send, word, deliveryStatusDetails=details).get_json()["kept"] == 1
    assert one(ledger, "SELECT status, code FROM receipt") == {"status": status, "code": details[:4]}
    row = delivery(ledger, send.id)
    assert (row["status"], row["receipt_status"]) == ("sent", status)
    assert scalar(ledger, "SELECT count(*) FROM suppression") == 0
