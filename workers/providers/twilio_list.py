"""
Whether a message stands in Twilio's own list: the last way to find out, once no callback has come.

Twilio keeps no reference of ours with a message, so it is told by its number, its text, its sender, and a moment of
creation within the call. One such message is ours, unless the ledger knows it as another delivery's; where there are
several nobody can tell, and none proves nothing: a message without a sending date is not listed by day.

Source: Twilio's API description of 2010-04-01, Messages list.
"""

import email.utils
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from shared.domain.proof import Pending, Proof, Taken, Unprovable
from shared.domain.receipts import TWILIO
from workers.providers.http import HttpResult
from workers.providers.protocol import Message, SmsMessage

#: how far Twilio's clock may differ from ours, and how long a message may take to be created after the call's end.
_CLOCKS_DIFFER = timedelta(seconds=30)
_CREATED_WITHIN = timedelta(seconds=60)
_PAGE_SIZE = 100
#: what a trial account puts before every text.
_TRIAL = "Sent from your Twilio trial account - "


def query_of(message: Message) -> str:
    """The query that lists what was sent to the message's number since the day of its call."""
    day = message.first_attempt_at.astimezone(UTC).date().isoformat()
    return urlencode({"To": message.to, "DateSent>": day, "PageSize": _PAGE_SIZE})


def read_list(result: HttpResult, message: SmsMessage, *, senders: Sequence[str], timeout_s: float) -> Proof:
    """Read the list; `senders` are the number and the messaging service that may stand as its sender."""
    listed = result.json().get("messages")
    if result.status != HTTPStatus.OK or result.error or not isinstance(listed, list):
        return Pending(
            f"Twilio's list could not be read ({result.status or 'no answer'})", failed=not result.is_success
        )
    until = message.first_attempt_at + timedelta(seconds=timeout_s) + _CREATED_WITHIN
    alike = [
        each
        for each in listed
        if isinstance(each, dict)
        and each.get("to") == message.to
        and str(each.get("body", "")).removeprefix(_TRIAL).strip() == message.text.strip()
        and (each.get("from") in senders or each.get("messaging_service_sid") in senders)
        and message.first_attempt_at - _CLOCKS_DIFFER <= _created(each) <= until
    ]
    evidence = {"listed": str(len(listed)), "alike": str(len(alike))}
    if len(alike) != 1:
        return Unprovable("no callback came, and Twilio's list does not tell it apart", evidence)
    sid = alike[0].get("sid")
    receipt = TWILIO.get(str(alike[0].get("status")))
    return Taken(sid if isinstance(sid, str) else None, "Twilio's list has it", receipt, by_likeness=True)


def _created(listed: dict[str, Any]) -> datetime:
    try:
        moment = email.utils.parsedate_to_datetime(str(listed.get("date_created")))
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
