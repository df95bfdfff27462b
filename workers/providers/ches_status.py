"""
What CHES knows of a message: found by our key in its tag, or stored and never queued.

    completed   its relay took the message
    pending     queued or being sent: CHES has it. A description too long for its column may leave it so for ever,
                so after ten minutes it counts as a 201 would have
    accepted    stored, not queued. After five minutes nobody will queue it: `POST /promote/{msgId}` does, under the
                message's own id, so that doing it twice is doing it once
    failed      one try failed; CHES makes three, ten seconds apart. Final after three failed entries, or two minutes
                without news
    cancelled   a person took it back at CHES

A retry carries the same tag, so what was stored before the call in question is left alone unless it was taken.
Look-ups see only messages of the same client.

Source: bcgov/common-hosted-email-service, app/src (statusSvc, queueSvc.promoteMessage, migrations); OptimalBits/bull,
lib/queue.js (`failed` is emitted for every failed attempt).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from http import HTTPStatus
from typing import Any

from shared.domain.outcome import Outcome, Permanent, Scope, Suppressed, Transient
from shared.domain.proof import Absent, Pending, Proof, Refused, Taken
from workers.providers.http import HttpResult
from workers.providers.smtp_outcomes import outcome_of_reply
from workers.providers.smtp_session import Reply, Stage

#: how far CHES's clock may be behind ours.
_CLOCKS_DIFFER = timedelta(seconds=60)
_NOBODY_QUEUES_IT = timedelta(minutes=5)
_STAYS_IN_ITS_QUEUE = timedelta(minutes=10)
_NO_MORE_TRIES = timedelta(minutes=2)
_TRIES = 3
#: seconds until another look at a message that CHES is working on.
_SOON_S = 30.0

#: How the mail library of CHES begins what went wrong → the stage of the conversation.
_STAGES = (
    ("mail command failed", Stage.MAIL),
    ("data command failed", Stage.DATA),
    ("message failed", Stage.DOT),
)
_SMTP_CODE = re.compile(r"\b([45]\d\d)[ -](?:([45]\.\d{1,3}\.\d{1,3})\b)?")


class Need(Enum):
    """A second question that the answer to the first one asks for."""

    HISTORY = "history"
    PROMOTE = "promote"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask CHES this about one of its messages."""

    need: Need
    msg_id: str


@dataclass(frozen=True, slots=True)
class _Message:
    msg_id: str
    status: str
    created_at: datetime | None


def read_found(result: HttpResult, *, attempt_at: datetime, now: datetime) -> Proof | Ask:
    """Read the answer to `GET /status?tag=`; `attempt_at` is when the call in question began."""
    messages = _messages(result)
    if messages is None:
        return _unreadable(result)
    for message in messages:
        if message.status == "completed":
            return Taken(message.msg_id, "CHES's relay took it")
    for message in messages:
        if message.status == "pending":
            if now - attempt_at >= _STAYS_IN_ITS_QUEUE:
                return Taken(message.msg_id, "CHES has it in its queue")
            return Pending("CHES is sending it", _SOON_S)
    ours = [each for each in messages if each.created_at is None or each.created_at >= attempt_at - _CLOCKS_DIFFER]
    for message in ours:
        if message.status == "accepted":
            age = now - (message.created_at or attempt_at)
            if age >= _NOBODY_QUEUES_IT:
                return Ask(Need.PROMOTE, message.msg_id)
            return Pending("CHES has stored it and not queued it yet", (_NOBODY_QUEUES_IT - age).total_seconds() + 1)
    for message in ours:
        if message.status == "failed":
            return Ask(Need.HISTORY, message.msg_id)
    if not ours:
        return Absent("CHES knows no message with this tag")
    if ours[0].status == "cancelled":
        return Refused(Permanent(Scope.RECIPIENT, "ches_cancelled", "the message was cancelled at CHES"))
    return Pending(f"CHES names an unknown state: {ours[0].status[:40]}")


def read_history(result: HttpResult, *, now: datetime) -> Proof:
    """Read the answer to `GET /status/{msgId}` of a message that failed."""
    if result.status != HTTPStatus.OK:
        return _unreadable(result)
    answer = result.json()
    if answer.get("status") != "failed":
        return Pending("CHES tried it again", 1.0)
    history = answer.get("statusHistory")
    failures = [
        entry
        for entry in (history if isinstance(history, list) else [])
        if isinstance(entry, dict) and entry.get("status") == "failed"
    ]
    updated = _moment(answer.get("updatedTS"))
    if len(failures) < _TRIES and (updated is None or now - updated < _NO_MORE_TRIES):
        return Pending("CHES may try it again", _SOON_S)
    newest = max(failures, key=lambda entry: str(entry.get("timestamp")), default={})
    return Refused(_outcome_of(str(newest.get("description") or "")))


def read_promoted(result: HttpResult) -> Proof:
    """Read the answer to `POST /promote/{msgId}`."""
    match result.status:
        case HTTPStatus.ACCEPTED | HTTPStatus.OK:
            return Pending("CHES had stored it and never queued it; now it has", _SOON_S)
        case HTTPStatus.CONFLICT:
            return Pending("CHES has it in its queue", _SOON_S)
        case _:
            return _unreadable(result)


def _outcome_of(description: str) -> Outcome:
    """Classify what CHES's relay answered; where that is not final for anybody, another call is worth an attempt."""
    code = _SMTP_CODE.search(description)
    if code is None:
        return Transient(Scope.RECIPIENT, "ches_failed", description)
    lowered = description.lower()
    stage = next((stage for start, stage in _STAGES if lowered.startswith(start)), Stage.RCPT)
    outcome = outcome_of_reply(stage, Reply(int(code[1]), code[2] or "", description))
    if isinstance(outcome, Permanent | Suppressed):
        return outcome
    return Transient(Scope.RECIPIENT, getattr(outcome, "code", "ches_failed"), description)


def _messages(result: HttpResult) -> Sequence[_Message] | None:
    """The messages of an answer, newest first; None where it is no such answer."""
    if result.status != HTTPStatus.OK or result.error:
        return None
    try:
        listed = json.loads(result.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, list):
        return None
    found = []
    for each in listed:
        if not isinstance(each, dict) or not isinstance(each.get("msgId"), str):
            return None
        found.append(_Message(each["msgId"], str(each.get("status")), _moment(each.get("createdTS"))))
    return sorted(found, key=lambda each: each.created_at or datetime.min.replace(tzinfo=UTC), reverse=True)


def _unreadable(result: HttpResult) -> Pending:
    said: dict[str, Any] = result.json()
    detail = str(said.get("detail") or said.get("title") or result.error_text)[:200]
    failed = result.status == 0 or result.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Pending(f"the look-up at CHES failed ({result.status or 'no answer'}): {detail}", failed=failed)


def _moment(value: object) -> datetime | None:
    """Read a time of CHES: milliseconds since 1970, as a number or its digits."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d{10,15}", text):
        return None
    return datetime.fromtimestamp(int(text) / 1_000, UTC)
