"""The HTTP API as the commands use it: time-outs on everything, errors in one sentence, submissions safe to repeat."""

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import IO, Any
from urllib.parse import SplitResult, urlsplit

from admin.cli.fault import CommandError
from admin.cli.screen import cell

#: Seconds to connect, and to wait for an ordinary answer.
_CONNECT_S, _ANSWER_S = 10.0, 60.0
#: Seconds to wait for the answer to a submission: a million recipients are checked and stored before it comes.
_ACCEPT_S = 600.0
#: Seconds between the tries of a submission; its Idempotency-Key makes repeating safe.
_WAITS_S = (1.0, 2.0, 4.0, 8.0)
#: Seconds for which a key that is busy is waited for: what a web process that died in a submission holds it for, and
#: some more; besides one for each MiB of the body (`admin.api.accept`).
_BUSY_S = 75.0
_PIECE = 64 * 1024
_MIN_ERROR, _UNAVAILABLE = 400, frozenset({429, 502, 503, 504})
#: What a header may hold: a newline in a key would begin another one.
_KEY, _IDEMPOTENCY_KEY = re.compile(r"[ -~]+"), re.compile(r"[!-~]{1,255}")

Progress = Callable[[int], None]


class Unreachable(CommandError):  # noqa: N818  # what it is; a CommandError already says that it is one
    """No answer came: the server is away, or the connection broke."""


class Refusal(CommandError):  # noqa: N818  # as above
    """The API said no. `faults` are the places it named, `fault_count` counts also those it did not list."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(cell(problem.get("detail") or f"the server answered {status}"))
        self.status = status
        self.slug = str(problem.get("type", "")).rpartition("#")[2]
        self.faults: list[dict[str, str]] = list(problem.get("errors") or [])
        self.fault_count = int(problem.get("error_count") or len(self.faults))


class ApiClient:
    """
    One installation and one key.

    Raises, from every method: Unreachable without an answer, Refusal for an answer of 400 or above.
    """

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or not _has_port(parts):
            raise CommandError("the address of the installation must look like https://tidings.example.com")
        if not _KEY.fullmatch(key):
            raise CommandError("the API key has a character that no key has; is there a newline in it?")
        self.url = url.rstrip("/")
        self._parts = parts
        self._key = key

    def get(self, path: str) -> dict[str, Any]:
        """The answer to a GET below `/api/v1`."""
        return self._ask("GET", path)

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        """The answer to a POST below `/api/v1`."""
        if body is None:
            return self._ask("POST", path)
        return self._ask("POST", path, json.dumps(body).encode())

    def submit(
        self,
        body: IO[bytes],
        size: int,
        *,
        key: str,
        on_progress: Progress = lambda _: None,
        on_replay: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """
        Hand in a send, again if no answer comes: under its Idempotency-Key it is accepted once.

        What it raises may mean that the send was accepted all the same: `is_undecided` tells.

        Args:
            body: the JSON, read from its beginning at each try.
            size: its length in bytes.
            key: the Idempotency-Key.
            on_progress: told how many bytes are sent.
            on_replay: told that the answer is that of an earlier submission under this key.
        """
        busy_until = time.monotonic() + _BUSY_S + size / (1024 * 1024)
        waits = iter(_WAITS_S)
        while True:
            body.seek(0)
            try:
                return self._ask(
                    "POST", "/sends", _pieces(body, on_progress), size=size, idempotency_key=key, on_replay=on_replay
                )
            except (Unreachable, Refusal) as fault:
                if not _may_pass(fault):
                    raise
                wait_s = next(waits, None)
                if wait_s is None:
                    if not _is_busy(fault) or time.monotonic() > busy_until:
                        raise
                    wait_s = _WAITS_S[-1]
                time.sleep(wait_s)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        *,
        size: int | None = None,
        idempotency_key: str | None = None,
        on_replay: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Accept": "application/json",
            "User-Agent": "tidings-command",
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        if size is not None:
            headers["Content-Length"] = str(size)
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        connection = self._connect()
        try:
            status, content, is_replayed = _exchange(
                connection, method, f"{self._parts.path.rstrip('/')}/api/v1{path}", body, headers
            )
        except (OSError, http.client.HTTPException) as fault:
            raise Unreachable(f"{self.url} broke off without an answer ({_name(fault)})") from None
        finally:
            connection.close()
        answer = _parse(content)
        if status >= _MIN_ERROR:
            raise Refusal(status, answer)
        if is_replayed:
            on_replay()
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_CONNECT_S)
        try:
            connection.connect()
        except OSError as fault:
            raise Unreachable(f"{self.url} does not answer ({_name(fault)}): wrong address, or not running") from None
        return connection


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | Iterator[bytes] | None,
    headers: Mapping[str, str],
) -> tuple[int, bytes, bool]:
    connection.sock.settimeout(_ANSWER_S)
    # A server may refuse before it has read everything, and close; its answer is then already here.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body, headers)
    connection.sock.settimeout(_ACCEPT_S if "Idempotency-Key" in headers else _ANSWER_S)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers.get("Idempotent-Replayed") == "true"


def _pieces(body: IO[bytes], on_progress: Progress) -> Iterator[bytes]:
    sent = 0
    while piece := body.read(_PIECE):
        yield piece
        sent += len(piece)
        on_progress(sent)


def is_idempotency_key(text: str) -> bool:
    """Whether the API takes it: 1 to 255 visible ASCII characters."""
    return _IDEMPOTENCY_KEY.fullmatch(text) is not None


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is a number, or none is given."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _parse(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def is_undecided(fault: Unreachable | Refusal) -> bool:
    """Whether a submission that ended so may be accepted: without an answer, or with one of a proxy that gave up."""
    return _may_pass(fault) or (isinstance(fault, Refusal) and fault.status >= HTTPStatus.INTERNAL_SERVER_ERROR)


def _may_pass(fault: Unreachable | Refusal) -> bool:
    return isinstance(fault, Unreachable) or fault.status in _UNAVAILABLE or _is_busy(fault)


def _is_busy(fault: Unreachable | Refusal) -> bool:
    return isinstance(fault, Refusal) and fault.slug == "idempotency-key-busy"


def _name(fault: Exception) -> str:
    return str(fault.strerror or type(fault).__name__) if isinstance(fault, OSError) else type(fault).__name__
