"""
Where providers report what became of a message: without an API key, proved by a signature or a secret.

A report is kept first and applied then; one that comes before our own record of the call waits for it. A report of
something unknown is answered like any other: its sender could do nothing about it.
"""

import hmac
import logging
import re
from typing import Any

from flask import request
from pydantic import BaseModel, Field

from admin.api.operations import operation
from admin.api.twilio_signature import is_signed
from admin.errors import ProblemError
from admin.extensions import services
from shared.accounts import TWILIO_CALLBACK_PATH
from shared.domain import receipts as stages
from shared.domain.ids import IdError, delivery_key, parse_delivery_id
from shared.domain.text_checks import check_storable
from shared.ledger import receipts
from shared.ledger.receipts import ReportedDelivery

_log = logging.getLogger(__name__)

#: characters kept of a provider's word, code or id.
_LONGEST = 64
#: send id, first and last row, and the epoch where it is not 0: as `workers.providers.acs` makes it.
_TAG = re.compile(r"([0-9a-f-]{36})\.(\d{1,9})-(\d{1,9})(?:\.(\d{1,5}))?", re.ASCII)
#: rows a report's tag may span: the adapter's own tags span fewer.
_WIDEST_TAG = 1_000
_REPORT = "Microsoft.Communication.SMSDeliveryReportReceived"
_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"


class ReceiptNoted(BaseModel):
    """Whether the report was news about a delivery."""

    kept: bool


class ReportsNoted(BaseModel):
    """How many of the events were news about deliveries; to a subscription's validation its code."""

    kept: int
    validationResponse: str | None = Field(default=None, description="The code of a SubscriptionValidationEvent.")  # noqa: N815


@operation(
    "POST",
    "/receipts/twilio",
    summary="Twilio's status callback",
    answer=ReceiptNoted,
    problems=(403, 503),
    headers={"X-Twilio-Signature": "As Twilio signs its webhooks, over PUBLIC_URL."},
)
def note_twilio_receipt() -> BaseModel:
    """Take what Twilio says of a message. The URL names the delivery and its key; Twilio's signature proves it."""
    form = {name: list(values) for name, values in request.form.lists()}
    _check_twilio(form)
    status = _word(form.get("MessageStatus", form.get("SmsStatus", [""]))[0])
    delivery = _called_back(request.args.get("delivery", ""), request.args.get("key", ""))
    if delivery is None or not status:
        return ReceiptNoted(kept=False)
    kept = _keep(
        delivery,
        provider="twilio",
        ref=_word(form.get("MessageSid", [""])[0]) or None,
        status=stages.TWILIO.get(status.lower(), status),
        code=_word(form.get("ErrorCode", [""])[0]) or None,
    )
    return ReceiptNoted(kept=kept)


@operation(
    "POST",
    "/receipts/acs",
    summary="Delivery reports of Azure Communication Services",
    answer=ReportsNoted,
    problems=(400, 403, 503),
    headers={"X-Tidings-Secret": "ACS_WEBHOOK_SECRET, where it is not in the query as `secret`."},
)
def note_acs_reports() -> BaseModel:
    """Take Event Grid's events: the validation of a subscription, and delivery reports of SMS."""
    _check_acs()
    events = request.get_json(force=True, silent=True)
    if isinstance(events, dict):
        events = [events]
    if not isinstance(events, list):
        raise ProblemError(400, "bad-request", "The body is not an array of events.")
    kept = 0
    for event in events:
        data = event.get("data") if isinstance(event, dict) else None
        if not isinstance(data, dict):
            continue
        if event.get("eventType") == _VALIDATION:
            return ReportsNoted(kept=kept, validationResponse=str(data.get("validationCode", "")))
        if event.get("eventType") == _REPORT:
            kept += _note_report(data)
    return ReportsNoted(kept=kept)


def _check_twilio(form: dict[str, list[str]]) -> None:
    settings = services().settings
    signature = request.headers.get("X-Twilio-Signature", "")
    if settings.public_url and settings.twilio_auth_token and signature:
        url = settings.public_url.rstrip("/") + TWILIO_CALLBACK_PATH
        query = request.query_string.decode("latin-1")
        token = settings.twilio_auth_token.get_secret_value()
        if is_signed(f"{url}?{query}" if query else url, form, signature=signature, token=token):
            return
    _log.warning("receipt_refused", extra={"provider": "twilio"})
    raise ProblemError(403, "bad-signature", "The signature is not Twilio's for this address and account.")


def _check_acs() -> None:
    secret = services().settings.acs_webhook_secret
    given = request.headers.get("X-Tidings-Secret") or request.args.get("secret", "")
    if secret is None or not hmac.compare_digest(secret.get_secret_value().encode(), given.encode("utf-8", "replace")):
        _log.warning("receipt_refused", extra={"provider": "acs"})
        raise ProblemError(403, "bad-secret", "The secret is not this installation's.")


def _called_back(delivery_id: str, key: str) -> ReportedDelivery | None:
    """The delivery a callback means, as it is now: after a requeue its earlier message is no longer it."""
    try:
        send_id, row_no = parse_delivery_id(delivery_id)
    except IdError:
        _unknown("twilio")
        return None
    with services().ledger.autocommit() as connection:
        delivery = receipts.find_delivery(connection, send_id=send_id, row_no=row_no)
    if delivery is None or key != str(delivery_key(send_id, row_no, delivery.epoch)):
        _unknown("twilio")
        return None
    return delivery


def _note_report(data: dict[str, Any]) -> bool:
    tag = _TAG.fullmatch(str(data.get("tag", "")))
    status = _word(data.get("deliveryStatus"))
    if tag is None or not status:
        return _unknown("acs")
    send_id, first_row, last_row = tag[1], int(tag[2]), int(tag[3])
    try:
        parsed, _ = parse_delivery_id(f"{send_id}.{first_row}")
    except IdError:
        return _unknown("acs")
    ref = _word(data.get("messageId")) or None
    with services().ledger.autocommit() as connection:
        delivery = receipts.find_reported(
            connection,
            send_id=parsed,
            first_row=first_row,
            last_row=min(last_row, first_row + _WIDEST_TAG),
            epoch=int(tag[4] or 0),
            address=_word(data.get("to")),
        )
    if delivery is None:
        return _unknown("acs")
    code = re.search(r"\b\d{4}\b", str(data.get("deliveryStatusDetails", "")))
    return _keep(
        delivery,
        provider="acs",
        ref=ref,
        status=stages.ACS.get(status.lower(), status),
        code=code[0] if code else None,
    )


def _keep(delivery: ReportedDelivery, *, provider: str, ref: str | None, status: str, code: str | None) -> bool:
    """Keep a report, committed; then let it do what it can. What it cannot do yet is done by the prover."""
    with services().ledger.autocommit() as connection:
        receipt = receipts.keep(connection, delivery, provider=provider, ref=ref, status=status, code=code)
        if receipt is not None:
            receipts.apply(connection, receipt)
    return receipt is not None


def _unknown(provider: str) -> bool:
    """Log a report of nothing we know: it was not kept."""
    _log.info("receipt_of_nothing_known", extra={"provider": provider})
    return False


def _word(value: object) -> str:
    """A provider's word as it can be stored; empty where it is none."""
    text = value if isinstance(value, str) else ""
    return "" if check_storable(text) else text[:_LONGEST]
