"""
The Common Hosted Email Service of the Government of British Columbia.

One `POST /email` per recipient. CHES has no idempotency key, but stores a `tag` of ours and finds by it
(`GET /status?tag=`): the tag is the message's key, so a lost answer can be resolved later.
CHES takes one body per message: a message with both parts goes as its HTML part. It has no Reply-To.

Source: bcgov/common-hosted-email-service, app/src (routes, validators.js, chesSvc.js, problem+json answers).
"""

import hashlib
import json
import re
import threading
import time
from base64 import b64encode
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pycurl

from shared.domain.outcome import Accepted, Configuration, Outcome, Permanent, Scope, Throttled, Transient
from workers.providers import classify
from workers.providers.http import GLANCE_S, HttpEngine, HttpLimits, HttpRequest, HttpResult
from workers.providers.protocol import EmailMessage, Message

#: seconds before its end at which a token is replaced; CHES checks `exp` without leeway, tokens live 300 s.
_TOKEN_MARGIN_S = 30.0
#: milliseconds a token request may take.
_TOKEN_TIMEOUT_MS = 10_000
#: seconds a token is used when the answer does not say; `expires_in` is only recommended (RFC 6749 §5.1).
_TOKEN_LIFE_UNSAID_S = 60.0
#: Source: RFC 6750 §2.1 (b64token); anything else would let an answer write into our request's head.
_TOKEN_SYNTAX = re.compile(r"[A-Za-z0-9._~+/=-]+")

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ChesConfig:
    """Where CHES is and who we are to it. `base_url` ends in /api/v1; times in milliseconds."""

    base_url: str
    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    timeout_ms: int = 120_000
    connect_timeout_ms: int = 5_000


@dataclass(slots=True)
class _Token:
    headers: list[str]
    good_until: float


class TokenSource:
    """
    The OAuth2 token of one client, shared by all threads of the process.

    One thread fetches while the others wait for its answer, a failure included: a dead token endpoint is
    asked once per wait, not once per thread.
    """

    def __init__(self, config: ChesConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._token: _Token | None = None
        self._last_failure: tuple[float, Outcome] | None = None

    def headers(self, *, unless: list[str] | None = None) -> Generator[None, None, list[str] | Outcome]:
        """
        Give the request headers that carry a valid token, or why there is none (never Ambiguous).

        Yields every 50 ms while it waits. `unless` are headers whose token CHES refused: a newer one that
        another thread fetched meanwhile is taken as it is, so that one expiry costs one fetch.
        """
        usable = self._usable(unless)
        if usable is not None:
            return usable
        asked_at = time.monotonic()
        while not self._lock.acquire(timeout=GLANCE_S):
            yield
        try:
            usable = self._usable(unless)
            if usable is not None:
                return usable
            if self._last_failure and self._last_failure[0] >= asked_at:
                return self._last_failure[1]
            fetched = yield from self._fetch()
            if isinstance(fetched, _Token):
                self._token = fetched
                return fetched.headers
            self._last_failure = (time.monotonic(), fetched)
            return fetched
        finally:
            self._lock.release()

    def _usable(self, unless: list[str] | None) -> list[str] | None:
        token = self._token
        if token is None or token.headers is unless or token.good_until <= time.monotonic():
            return None
        return token.headers

    def _fetch(self) -> Generator[None, None, _Token | Outcome]:
        config = self._config
        pair = b64encode(f"{config.client_id}:{config.client_secret}".encode()).decode()
        request = HttpRequest(
            config.token_url,
            [f"Authorization: Basic {pair}", "Content-Type: application/x-www-form-urlencoded"],
            urlencode({"grant_type": "client_credentials"}).encode(),
        )
        timeout_ms = min(_TOKEN_TIMEOUT_MS, config.timeout_ms)
        engine = HttpEngine(HttpLimits(total_timeout_ms=timeout_ms, connect_timeout_ms=config.connect_timeout_ms))
        started = time.monotonic()
        engine.start(0, request)
        try:
            for ended in engine.results():
                if ended is None:
                    yield
                else:
                    result = ended[1]
        finally:
            engine.close()
        answer = result.json()
        token = answer.get("access_token")
        if result.status != HTTPStatus.OK or not isinstance(token, str) or not _TOKEN_SYNTAX.fullmatch(token):
            return _token_failure(result, answer)
        lives = answer.get("expires_in")
        lives_s = float(lives) if isinstance(lives, int | float) else _TOKEN_LIFE_UNSAID_S
        good_until = started + max(lives_s - _TOKEN_MARGIN_S, lives_s / 2)
        return _Token([f"Authorization: Bearer {token}", "Content-Type: application/json"], good_until)


_sources: dict[ChesConfig, TokenSource] = {}
_sources_lock = threading.Lock()


class ChesProvider:
    """The adapter; one instance per worker thread, the token shared between them."""

    name = "ches"

    def __init__(self, config: ChesConfig) -> None:
        self._config = config
        self._url = config.base_url.rstrip("/") + "/email"
        self._engine = HttpEngine(
            HttpLimits(total_timeout_ms=config.timeout_ms, connect_timeout_ms=config.connect_timeout_ms)
        )
        with _sources_lock:
            self._tokens = _sources.setdefault(config, TokenSource(config))
        account = f"{config.base_url} {config.client_id}"
        self.credential = hashlib.sha256(account.encode()).hexdigest()[:12]

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """
        Post each message; one refused with 401 is posted once more with a fresh token.

        Both tries and the token share the one total time.
        """
        ends_at = time.monotonic() + self._config.timeout_ms / 1_000
        headers = yield from self._tokens.headers()
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
                fresh = yield from self._tokens.headers(unless=headers)
                if not isinstance(fresh, list):
                    yield index, fresh
                    continue
                request = HttpRequest(self._url, fresh, _body(messages[index]), timeout_ms=_milliseconds_until(ends_at))
                self._engine.start(index, request)
            else:
                yield index, outcome_of(result)

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


def _token_failure(result: HttpResult, answer: dict[str, Any]) -> Outcome:
    """Say why there is no token. That is never ambiguous: nothing was sent to anybody."""
    error = classify.first_detail(answer.get("error"), result.error_text)
    code = classify.as_code("ches_token", answer.get("error") or result.status or "unreachable")
    if result.status:
        usual = classify.status_default(result, code=code, detail=error)
        if isinstance(usual, Permanent):
            return Configuration(Scope.PROVIDER, code, classify.first_detail(answer.get("error_description"), error))
    else:
        usual = classify.transport_failure(result)
    if isinstance(usual, Configuration | Throttled):
        return usual
    return Transient(Scope.PROVIDER, code, error, timed_out=result.error == pycurl.E_OPERATION_TIMEDOUT)


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
