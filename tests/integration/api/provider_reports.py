"""What Twilio and Azure post about messages of ours."""

from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from admin.api.twilio_signature import sign
from shared.domain.ids import delivery_key
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.support.factories import MadeSend
from tests.support.ledger_rows import put_rows

PUBLIC = "https://tidings.example.com"
TOKEN = "t0ken-of-twilio"
SECRET = "a-secret-of-event-grid"
NUMBER = "+16045550101"


def settings_for_reports(plain: Settings) -> Settings:
    """Those with which both providers' reports are taken."""
    more = {"public_url": PUBLIC, "twilio_auth_token": TOKEN, "acs_webhook_secret": SECRET}
    return Settings(**{**plain.model_dump(exclude_unset=True), **more})


def put_provider(ledger: Ledger, provider: str = "twilio") -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET provider = %s", [provider])


def called_back(
    client: FlaskClient,
    send: MadeSend,
    status: str,
    *,
    row_no: int = 1,
    epoch: int = 0,
    signed_for: str = PUBLIC,
    token: str = TOKEN,
    signature: str | None = None,
    **more: str,
) -> TestResponse:
    """What Twilio posts about a message of ours."""
    query = f"delivery={send.id}.{row_no}&key={delivery_key(send.id, row_no, epoch)}"
    form = {"MessageSid": "SM1", "MessageStatus": status, "To": NUMBER, "AccountSid": "AC1", **more}
    url = f"{signed_for}/api/v1/receipts/twilio?{query}"
    signed = sign(url, {name: [value] for name, value in form.items()}, token=token)
    return client.post(
        f"/api/v1/receipts/twilio?{query}",
        data=form,
        headers={"X-Twilio-Signature": signed if signature is None else signature},
    )


def reported(client: FlaskClient, send: MadeSend, status: str, *, secret: str = SECRET, **more: Any) -> TestResponse:
    """What Event Grid posts about a message of ours."""
    data = {
        "messageId": "acs-1",
        "from": "+18335550100",
        "to": NUMBER,
        "deliveryStatus": status,
        "tag": f"{send.id}.1-2",
    }
    event = {"eventType": "Microsoft.Communication.SMSDeliveryReportReceived", "data": {**data, **more}}
    return client.post(f"/api/v1/receipts/acs?secret={secret}", json=[event])


def sent(ledger: Ledger, send: MadeSend) -> None:
    put_rows(ledger, send.id, [1, 2], "sent", attempts=1)
    put_provider(ledger)
