"""
SMS through Azure Communication Services: up to 100 recipients of the same text in one request.

Each recipient carries our key as its repeatability id, so a repeat inside Azure's window gives the first
result again. The window is documented as 5 minutes for other services of the family and taken as the same
for SMS. A message first tried longer ago is sent with a new first-sent time: by then its earlier tries are
settled as not taken, and the old time would only be refused (412).

An unknown outcome is found out by repeating the message, with its id and its first-sent time, inside the window:
Azure then answers as it answered first. A gateway's 502 or 504 is one too: the backoff of a plain retry would outlast
the window (ADR-0007). Later only a delivery report can tell, where reports come in. Reports name a tag of the request:
`<send id>.<first row>-<last row>`, of rows close together; of requeued ones with `.<epoch>` behind.

All recipients of one HTTP call that failed as a whole share one Outcome object, and equal provider-scope
failures inside one answer do too: whoever counts calls for the circuit counts objects, not recipients.

Source: Azure/azure-rest-api-specs, communication Sms 2026-01-23; learn.microsoft.com/rest/api/communication
(authentication, repeatable requests); OASIS Repeatable Requests 1.0.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from shared.domain import resolutions
from shared.domain.outcome import (
    Accepted,
    Configuration,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from shared.domain.proof import Pending, Proof, Refused, Taken
from workers.providers import classify
from workers.providers.http import HttpLimits, HttpRequest, HttpResult
from workers.providers.http_engine import HttpEngine
from workers.providers.protocol import Message, SmsMessage

_PATH = "/sms?api-version=2026-01-23"
#: Source: the service's description, smsRecipients maxItems.
_RECIPIENTS_PER_REQUEST = 100
#: rows of a send that one request's tag may span: a report looks for its number among them.
_TAG_ROWS = 1_000
#: seconds to wait when Azure is still at work on an earlier request with the same id.
_IN_PROGRESS_WAIT_S = 10.0

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class AcsConfig:
    """
    One resource and its access key (base64). `sender` stands where a message names none.

    `reports`: Azure's delivery reports reach us.
    """

    endpoint: str
    access_key: str = field(repr=False)
    sender: str
    timeout_ms: int = 15_000
    connect_timeout_ms: int = 3_000
    reports: bool = False


class AcsProvider:
    """The adapter; one instance per worker thread."""

    name = "acs"

    def __init__(self, config: AcsConfig) -> None:
        self._config = config
        self._url = config.endpoint.rstrip("/") + _PATH
        self._host = urlsplit(config.endpoint).netloc
        self._key = base64.b64decode(config.access_key)
        self._engine = HttpEngine(
            HttpLimits(total_timeout_ms=config.timeout_ms, connect_timeout_ms=config.connect_timeout_ms)
        )
        self.resolution = resolutions.acs(reports=config.reports)
        self.credential = hashlib.sha256(config.endpoint.encode()).hexdigest()[:12]

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """Post the messages, those with the same sender and text together."""
        texts = [_only_sms(message) for message in messages]
        groups = _grouped(texts, self._config.sender)
        for number, group in enumerate(groups):
            body = _body([texts[index] for index in group], self._config.sender)
            self._engine.start(number, HttpRequest(self._url, self._signed_headers(body), body))
        for ended in self._engine.results():
            if ended is None:
                yield None
                continue
            number, result = ended
            group = groups[number]
            yield from zip(group, outcomes_of(result, [messages[index].to for index in group]), strict=True)

    def cut(self) -> None:
        """See `Provider.cut`."""
        self._engine.stop()

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """
        Repeat the messages whose window is open, under their ids and first-sent times.

        Never with a new first-sent time: that would be another message.
        """
        open_ = [index for index, message in enumerate(messages) if message.age_s < resolutions.ACS_WINDOW_S]
        for index in set(range(len(messages))) - set(open_):
            yield index, Pending("the time for a repeat is over; a delivery report may still come", asked=False)
        texts = [_only_sms(messages[index]) for index in open_]
        groups = _grouped(texts, self._config.sender)
        for number, group in enumerate(groups):
            body = _body([texts[index] for index in group], self._config.sender)
            self._engine.start(number, HttpRequest(self._url, self._signed_headers(body), body))
        for ended in self._engine.results():
            if ended is None:
                yield None
                continue
            number, result = ended
            group = groups[number]
            for index, outcome in zip(group, outcomes_of(result, [texts[i].to for i in group]), strict=True):
                yield open_[index], _proof_of(outcome, result)

    def close(self) -> None:
        """Close kept connections."""
        self._engine.close()

    def _signed_headers(self, body: bytes) -> list[str]:
        date = format_datetime(datetime.now(UTC), usegmt=True)
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        to_sign = f"POST\n{_PATH}\n{date};{self._host};{digest}"
        signature = base64.b64encode(hmac.digest(self._key, to_sign.encode(), "sha256")).decode()
        return [
            f"x-ms-date: {date}",
            f"x-ms-content-sha256: {digest}",
            f"Authorization: HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature={signature}",
            f"Host: {self._host}",
            "Content-Type: application/json",
        ]


def outcomes_of(result: HttpResult, recipients: Sequence[str]) -> list[Outcome]:
    """Classify Azure's answer: one outcome for each recipient of the request, in its order."""
    items = result.json().get("value") if result.is_success else None
    if not isinstance(items, list):
        return [_outcome_of_request(result)] * len(recipients)
    by_number = {item["to"]: item for item in items if isinstance(item, dict) and isinstance(item.get("to"), str)}
    shared: dict[Outcome, Outcome] = {}
    outcomes: list[Outcome] = []
    for recipient in recipients:
        item = by_number.get(recipient)
        if item is None:
            outcomes.append(classify.ambiguous(result, code="acs_item_missing", detail="no result for this recipient"))
            continue
        outcome = _outcome_of_item(item, result)
        outcomes.append(shared.setdefault(outcome, outcome) if isinstance(outcome, Transient | Throttled) else outcome)
    return outcomes


def _proof_of(outcome: Outcome, result: HttpResult) -> Proof:
    """What the answer to a repeat says of the first call: only what Azure says of this very recipient."""
    match outcome:
        case Accepted(ref):
            return Taken(ref, "Azure gave the first answer again")
        case Permanent() | Suppressed() | Transient() if result.is_success:
            return Refused(outcome)  # a 5xx was answered by running the request once more: not taken then nor now
        case Throttled():
            return Pending(f"{outcome.code}: {outcome.detail}", outcome.retry_after_s)
        case _:
            detail = f"the repeat came to {getattr(outcome, 'code', 'nothing')}"
            return Pending(detail, failed=not result.is_success)


def _outcome_of_request(result: HttpResult) -> Outcome:
    if result.status == 0:
        return classify.transport_failure(result)
    if result.is_success:
        # Single recipients may have been refused inside the answer that was lost.
        return classify.ambiguous(result, code="acs_result_lost", detail=result.error_text)
    error = result.json().get("error")
    error = error if isinstance(error, dict) else {}
    code = f"acs_{result.status}"
    detail = classify.first_detail(error.get("message"), error.get("code"))
    match result.status:
        case 404 | 405:
            return Configuration(Scope.PROVIDER, code, detail)
        case 500:
            # The service runs a request again whose first answer was a 5xx of its own: nothing was taken.
            return Transient(Scope.PROVIDER, code, detail)
        case 409:
            return Throttled(code, detail, _IN_PROGRESS_WAIT_S, Scope.RECIPIENT)
        case 412:
            return classify.ambiguous(result, code=code, detail=detail)
        case _:
            return classify.status_default(result, code=code, detail=detail)


def _outcome_of_item(item: dict[str, Any], result: HttpResult) -> Outcome:
    status = item.get("httpStatusCode")
    if not isinstance(status, int):
        return classify.ambiguous(result, code="acs_item_unreadable")
    code = f"acs_item_{status}"
    detail = classify.first_detail(item.get("errorMessage"))
    rejected = str(item.get("repeatabilityResult", "")).lower() == "rejected"
    match status:
        case _ if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            message_id = item.get("messageId")
            return Accepted(message_id if isinstance(message_id, str) else None)
        case 400 | 412 if rejected:
            # Our id was used before with another body, or its window is over: its first use may have worked.
            return classify.ambiguous(result, code="acs_repeatability_rejected", detail=detail)
        case 401 | 403:
            return Configuration(Scope.PROVIDER, code, detail)
        case 409:
            return Throttled(code, detail, _IN_PROGRESS_WAIT_S, Scope.RECIPIENT)
        case 429:
            return Throttled(code, detail, classify.retry_after_s(result))
        case 408:
            return Transient(Scope.PROVIDER, code, detail)
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Transient(Scope.PROVIDER, code, detail)
        case _:
            return Permanent(Scope.RECIPIENT, code, detail)


def _only_sms(message: Message) -> SmsMessage:
    if not isinstance(message, SmsMessage):
        raise TypeError("ACS sends SMS only")
    return message


def _grouped(messages: Sequence[SmsMessage], default_sender: str) -> list[list[int]]:
    """
    Cut into requests: one sender, one text, one epoch and one stretch of a send each.

    No number is in one twice: results and reports are matched by number.
    """
    groups: list[list[int]] = []
    open_groups: dict[tuple[str, str, str, int, int], tuple[list[int], set[str]]] = {}
    for index, message in enumerate(messages):
        send_id, _, row = message.delivery_id.rpartition(".")
        alike = (message.sender or default_sender, message.text, send_id, int(row) // _TAG_ROWS, message.epoch)
        group, numbers = open_groups.get(alike, ([], set()))
        if not group or message.to in numbers or len(group) == _RECIPIENTS_PER_REQUEST:
            group, numbers = [], set()
            groups.append(group)
            open_groups[alike] = (group, numbers)
        group.append(index)
        numbers.add(message.to)
    return groups


def _body(messages: Sequence[SmsMessage], default_sender: str) -> bytes:
    first = messages[0]
    recipients = [
        {
            "to": message.to,
            "repeatabilityRequestId": str(message.key),
            "repeatabilityFirstSent": format_datetime(message.first_attempt_at.astimezone(UTC), usegmt=True),
        }
        for message in messages
    ]
    return _encode(
        {
            "from": first.sender or default_sender,
            "message": first.text,
            "smsRecipients": recipients,
            "smsSendOptions": {"enableDeliveryReport": True, "tag": _tag(messages)},
        }
    ).encode("ascii")


def _tag(messages: Sequence[SmsMessage]) -> str:
    rows = [int(message.delivery_id.rpartition(".")[2]) for message in messages]
    epoch = f".{messages[0].epoch}" if messages[0].epoch else ""
    return f"{messages[0].delivery_id.rpartition('.')[0]}.{min(rows)}-{max(rows)}{epoch}"
