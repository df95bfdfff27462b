"""What goes into an HTTP call of a provider, and what comes out; `workers.providers.http_engine` makes it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

#: Opens the sockets of one handle, told how to ask which call is on it (`digest.guard`).
SocketOpener = Callable[[Callable[[], int]], Callable[[int, object], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of every call; the ages stay below the shortest idle limit of gateways seen (nginx and ALB: 60 s)."""

    total_timeout_ms: int
    connect_timeout_ms: int = 5_000
    idle_connection_s: int = 15
    connection_lifetime_s: int = 240
    #: PEM file of the authorities trusted, in place of the public ones.
    ca_file: str | None = None
    #: Looks at each address before it is connected to.
    socket_opener: SocketOpener | None = None


class HttpRequest(NamedTuple):
    """One call. Pass the same `url` and `headers` objects again and again: unchanged ones are not set anew."""

    url: str
    headers: list[str]
    body: bytes | None
    method: str = "POST"
    #: milliseconds, in place of the engine's total, for a call that has used up a part of it already.
    timeout_ms: int | None = None


@dataclass(slots=True)
class HttpResult:
    """
    How one call ended.

    `status` is 0 where no final status line was read. `error` is libcurl's code, 0 where the exchange was
    complete: a status together with an error means that the body was lost. `bytes_sent` counts head and
    body as handed to the kernel, over every connection tried; it is read only where `error` is not 0.
    """

    status: int
    head: list[bytes]
    body: bytes
    error: int = 0
    error_text: str = ""
    bytes_sent: int = 0
    #: False where an error came before the last byte of the request's body was handed to the kernel.
    request_complete: bool = True
    elapsed_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """Whether a final 2xx status line was read, whatever became of the body."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def was_not_sent(self) -> bool:
        """Whether the exchange failed before one byte of the request left this machine."""
        return self.status == 0 and self.error != 0 and self.bytes_sent == 0

    def json(self) -> dict[str, Any]:
        """Parse the body as a JSON object; empty where it is anything else."""
        try:
            parsed = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def header(self, name: str) -> str | None:
        """Give the last value of a header of the final answer; `name` in lower case."""
        prefix = name.encode("ascii") + b":"
        for line in reversed(self.head):
            if line.startswith(b"HTTP/"):
                return None  # what lies before belongs to an interim answer (1xx)
            if line[: len(prefix)].lower() == prefix:
                return line[len(prefix) :].strip().decode("latin-1")
        return None
