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
    called_back,
    put_provider,
    reported,
    settings_for_reports,
)
from tests.support.books import assert_books_balance
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import put_rows, scalar


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return settings_for_reports(make_settings(database_url, redis_url))


@pytest.fixture
def client(app: Flask, ledger: Ledger) -> Iterator[FlaskClient]:
    yield app.test_client()
    assert_books_balance(ledger)


NUMBERS = [f"+160455501{n:02}" for n in range(8)]


@pytest.fixture
def send(ledger: Ledger) -> MadeSend:
    send = make_send(ledger, addresses=NUMBERS, channel=Channel.SMS, status=SendStatus.SENDING)
    put_rows(ledger, send.id, range(1, len(NUMBERS) + 1), "sent", attempts=1)
    return send


def reasons(ledger: Ledger) -> list[tuple[str, str | None]]:
    """State and reason of each delivery's report; nothing else came of any of them."""
    assert scalar(ledger, "SELECT count(*) FROM delivery WHERE status <> 'sent'") == 0
    assert scalar(ledger, "SELECT count(*) FROM suppression") == 0
    with ledger.autocommit() as connection:
        query = "SELECT receipt_status, code FROM receipt JOIN delivery USING (send_id, row_no) ORDER BY row_no"
        return list(connection.execute(query).fetchall())


def test_every_reason_of_twilios_is_kept_sends_nothing_again_and_suppresses_nobody(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_provider(ledger)
    codes = ["30003", "30005", "30006", "30007", "30008", "30034", "39999", None]
    for row_no, code in enumerate(codes, start=1):
        called_back(client, send, "undelivered", row_no=row_no, **({} if code is None else {"ErrorCode": code}))
    assert reasons(ledger) == [("undelivered", code) for code in codes]


AZURES = [
    ("Delivered", "2000: Message Delivered Successfully", "delivered"),
    ("Failed", "4000: Sender is not allowed", "failed"),
    ("Failed", "4001: Sender is blocked", "failed"),
    ("Undeliverable", "4002: Number does not exist", "undelivered"),
    ("Expired", "4006: Destination is not reachable", "undelivered"),
    ("Rejected", "4008: Throttled", "failed"),
    ("Failed", "5000: Unknown", "failed"),
    ("Accepted", "5002: Delivered or not, unknown", "queued"),
]


def test_every_reason_of_azures_is_kept_sends_nothing_again_and_suppresses_nobody(
    ledger: Ledger, client: FlaskClient, send: MadeSend
) -> None:
    put_provider(ledger, "acs")
    for number, (word, details, _) in zip(NUMBERS, AZURES, strict=True):
        reported(client, send, word, to=number, tag=f"{send.id}.1-8", deliveryStatusDetails=details)
    assert reasons(ledger) == [(status, details[:4]) for _, details, status in AZURES]
