"""The OAuth2 token that CHES wants: client credentials, kept for the process, fetched by one thread at a time."""

import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import pycurl

from shared.domain.outcome import Configuration, NotAttempted, Outcome, Permanent, Scope, Throttled, Transient
from workers.providers import classify
from workers.providers.http import HttpLimits, HttpRequest, HttpResult
from workers.providers.http_engine import GLANCE_S, HttpEngine

#: seconds before its end at which a token is replaced; CHES checks `exp` without leeway, tokens live 300 s.
_TOKEN_MARGIN_S = 30.0
#: milliseconds a token request may take.
_TOKEN_TIMEOUT_MS = 10_000
#: seconds a token is used when the answer does not say; `expires_in` is only recommended (RFC 6749 §5.1).
_TOKEN_LIFE_UNSAID_S = 60.0
#: Source: RFC 6750 §2.1 (b64token); anything else would let an answer write into our request's head.
_TOKEN_SYNTAX = re.compile(r"[A-Za-z0-9._~+/=-]+")


_STOPPED = NotAttempted("the process had to stop before there was a token")


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

    def headers(
        self, *, unless: list[str] | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Generator[None, None, list[str] | Outcome]:
        """
        Give the request headers that carry a valid token, or why there is none (never Ambiguous).

        Yields every 50 ms while it waits, and waits no longer once `stop` says so: NotAttempted. `unless` are
        headers whose token CHES refused: a newer one that another thread fetched meanwhile is taken as it is, so that
        one expiry costs one fetch.
        """
        usable = self._usable(unless)
        if usable is not None:
            return usable
        asked_at = time.monotonic()
        while not self._lock.acquire(timeout=GLANCE_S):
            if stop():
                return _STOPPED
            yield
        try:
            usable = self._usable(unless)
            if usable is not None:
                return usable
            if self._last_failure and self._last_failure[0] >= asked_at:
                return self._last_failure[1]
            fetched = yield from self._fetch(stop)
            if fetched is _STOPPED:
                return fetched
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

    def _fetch(self, stop: Callable[[], bool]) -> Generator[None, None, _Token | Outcome]:
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
                if ended is None and stop():
                    return _STOPPED
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


def token_source(config: ChesConfig) -> TokenSource:
    """Give the one source of the process for a client."""
    with _sources_lock:
        return _sources.setdefault(config, TokenSource(config))


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
