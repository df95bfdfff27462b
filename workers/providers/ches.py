"""
The Common Hosted Email Service of the Government of British Columbia.

One `POST /email` per recipient. CHES has no idempotency key, but stores a `tag` of ours and finds by it
(`GET /status?tag=`): the tag is the message's key, so a lost answer can be resolved later.
CHES takes one body per message: a message with both parts goes as its HTML part. It has no Reply-To.

Source: bcgov/common-hosted-email-service, app/src (routes, validators.js, chesSvc.js, problem+json answers).
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from shared.domain import resolutions
from shared.domain.outcome import Accepted, Configuration, NotAttempted, Outcome, Permanent, Scope, Transient
from shared.domain.proof import Pending, Proof
from workers.providers import ches_status, classify
from workers.providers.ches_status import Ask, Need
from workers.providers.ches_token import ChesConfig, token_source
from workers.providers.http import HttpLimits, HttpRequest, HttpResult
from workers.providers.http_engine import HttpEngine
from workers.providers.protocol import PROVE_S, EmailMessage, Message

_encode = json.JSONEncoder(separators=(",", ":")).encode
#: A call begun then would be cut at once, and nobody would know what became of it; after a freeze it could even be one
#: that others have found absent meanwhile.
_TOO_LATE = NotAttempted("the time of the call was over before there was a token")


class ChesProvider:
    """The adapter; one instance per worker thread, the token shared between them."""

    name = "ches"

    def __init__(self, config: ChesConfig) -> None:
        self._config = config
        self._url = config.base_url.rstrip("/") + "/email"
        self._engine = HttpEngine(
            HttpLimits(total_timeout_ms=config.timeout_ms, connect_timeout_ms=config.connect_timeout_ms)
        )
        self._tokens = token_source(config)
        self._stopped = False
        self.resolution = resolutions.ches(config.timeout_ms / 1_000)
        account = f"{config.base_url} {config.client_id}"
        self.credential = hashlib.sha256(account.encode()).hexdigest()[:12]

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """
        Post each message; one refused with 401 is posted once more with a fresh token.

        Both tries and the token share the one total time.
        """
        ends_at = time.monotonic() + self._config.timeout_ms / 1_000
        headers = yield from self._tokens.headers(stop=lambda: self._stopped)
        if isinstance(headers, list) and time.monotonic() >= ends_at:
            headers = _TOO_LATE
        if not isinstance(headers, list):
            yield from classify.every(headers, len(messages))
            return
        left_ms = _milliseconds_until(ends_at)
        for index, message in enumerate(messages):
            self._engine.start(index, HttpRequest(self._url, headers, _body(message), timeout_ms=left_ms))
        again: set[int] = set()
        for ended in self._engine.results():
            if ended is None:
                yield None
                continue
            index, result = ended
            if result.status == HTTPStatus.UNAUTHORIZED and index not in again:
                again.add(index)
                fresh = yield from self._tokens.headers(unless=headers, stop=lambda: self._stopped)
                if not isinstance(fresh, list):
                    yield index, fresh
                    continue
                if time.monotonic() >= ends_at:
                    yield index, _TOO_LATE
                    continue
                request = HttpRequest(self._url, fresh, _body(messages[index]), timeout_ms=_milliseconds_until(ends_at))
                self._engine.start(index, request)
            else:
                yield index, outcome_of(result)

    def cut(self) -> None:
        """See `Provider.cut`."""
        self._stopped = True
        self._engine.stop()

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """
        Look each message up by its tag, and ask on where the answer needs it.

        A message that CHES stored and never queued is put into its queue here.
        """
        ends_at = time.monotonic() + PROVE_S
        headers = yield from self._tokens.headers()
        if not isinstance(headers, list):
            detail = f"no look-up without a token: {getattr(headers, 'code', '')}"
            yield from [(index, Pending(detail, failed=True)) for index in range(len(messages))]
            return
        asks: dict[int, Ask | None] = dict.fromkeys(range(len(messages)))
        for index, message in enumerate(messages):
            self._engine.start(index, self._question(message, None, headers, ends_at))
        renewed: set[int] = set()
        for ended in self._engine.results():
            if ended is None:
                yield None
                continue
            index, result = ended
            if result.status == HTTPStatus.UNAUTHORIZED and index not in renewed:
                renewed.add(index)
                fresh = yield from self._tokens.headers(unless=headers)
                if isinstance(fresh, list):
                    self._engine.start(index, self._question(messages[index], asks[index], fresh, ends_at))
                    continue
            answer = _read(result, asks[index], messages[index])
            if isinstance(answer, Ask):
                asks[index] = answer
                self._engine.start(index, self._question(messages[index], answer, headers, ends_at))
            else:
                yield index, answer

    def _question(self, message: Message, ask: Ask | None, headers: list[str], ends_at: float) -> HttpRequest:
        base = self._config.base_url.rstrip("/")
        left_ms = _milliseconds_until(ends_at)
        match ask:
            case None:
                return HttpRequest(f"{base}/status?tag={message.key}", headers, None, "GET", left_ms)
            case Ask(Need.HISTORY):
                return HttpRequest(f"{base}/status/{quote(ask.msg_id, safe='')}", headers, None, "GET", left_ms)
            case _:
                return HttpRequest(f"{base}/promote/{quote(ask.msg_id, safe='')}", headers, b"", "POST", left_ms)

    def close(self) -> None:
        """Close kept connections."""
        self._engine.close()


def outcome_of(result: HttpResult) -> Outcome:
    """Classify CHES's answer to `POST /email`."""
    if result.status == 0:
        return classify.transport_failure(result)
    answer = result.json()
    if result.is_success:
        return Accepted(_msg_id(answer))
    code = f"ches_{result.status}"
    detail = classify.first_detail(answer.get("detail"), answer.get("details"), answer.get("title"))
    match result.status:
        case 400 if "authorized party" in detail.lower():
            return Configuration(Scope.PROVIDER, "ches_no_azp", detail)
        case 404 | 405:
            return Configuration(Scope.PROVIDER, code, detail)  # the path is ours; CHES has no such answer
        case 422:
            return _refused_fields(answer, detail)
        case 500 if _is_body_parser_error(detail):
            return Permanent(Scope.MESSAGE, "ches_body_refused", detail)
        case 500 if detail:
            # CHES answers 500 around its database write; queueing comes after it, so nothing is under way.
            return Transient(Scope.PROVIDER, code, detail)
        case _:
            return classify.status_default(result, code=code, detail=detail)


def _read(result: HttpResult, ask: Ask | None, message: Message) -> Proof | Ask:
    now = message.first_attempt_at + timedelta(seconds=message.age_s)
    match ask:
        case None:
            return ches_status.read_found(result, attempt_at=message.first_attempt_at, now=now)
        case Ask(Need.HISTORY):
            return ches_status.read_history(result, now=now)
        case _:
            return ches_status.read_promoted(result)


#: What a 422 names → what it speaks about. Order matters: the gravest first.
_FIELD_CLASS: tuple[tuple[tuple[str, ...], Scope, bool], ...] = (
    (("tag", "delayTS"), Scope.PROVIDER, True),
    (("from",), Scope.SENDER, True),
    (("subject", "body", "bodyType", "encoding", "priority", "attachments"), Scope.MESSAGE, False),
    (("to", "cc", "bcc"), Scope.RECIPIENT, False),
)


def _refused_fields(answer: dict[str, Any], detail: str) -> Outcome:
    errors = answer.get("errors")
    texts = [str(e.get("message", "")) for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
    for names, scope, is_setup in _FIELD_CLASS:
        for text in texts:
            name = next((n for n in names if f"`{n}`" in text or f"'{n}'" in text), None)
            if name is not None:
                code = classify.as_code("ches_422", name)
                # The error's `value` is the address itself and stays out; its message names the field.
                return Configuration(scope, code, text) if is_setup else Permanent(scope, code, text)
    return Permanent(Scope.MESSAGE, "ches_422", detail)


def _is_body_parser_error(detail: str) -> bool:
    # Messages of Express' body parser and of JSON.parse, which CHES passes on as 500.
    lowered = detail.lower()
    return "request entity too large" in lowered or (
        "json" in lowered and ("unexpected" in lowered or "in json" in lowered)
    )


def _body(message: Message) -> bytes:
    if not isinstance(message, EmailMessage):
        raise TypeError("CHES sends e-mail only")
    return _encode(
        {
            "from": message.sender,
            "to": [message.to],
            "subject": message.subject,
            "bodyType": "text" if message.html is None else "html",
            "body": message.text if message.html is None else message.html,
            "encoding": "utf-8",
            "priority": "normal",
            "tag": str(message.key),
        }
    ).encode("ascii")


def _msg_id(answer: dict[str, Any]) -> str | None:
    messages = answer.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[0], dict):
        found = messages[0].get("msgId")
        return found if isinstance(found, str) else None
    return None


def _milliseconds_until(moment: float) -> int:
    return max(1, int((moment - time.monotonic()) * 1_000))
