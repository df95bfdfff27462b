"""Taking a request's body: bounded in size, on disk when it is large, JSON only."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from flask import request
from pydantic import BaseModel
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from admin.api.faults import shape_faults, unstorable
from admin.api.json_stream import JsonError, JsonReader
from admin.api.limits import MAX_SMALL_BODY_BYTES
from admin.errors import Fault, ProblemError

#: Bytes of a body kept in memory; a larger one goes to a temporary file.
_IN_MEMORY = 1024 * 1024
_PIECE = 256 * 1024
#: How much of a body that is too large is read and thrown away, as a multiple of what is allowed and at least in bytes:
#: most clients read no answer before they have sent everything, and would see a reset connection instead of the 413.
_DRAIN_TIMES, _DRAIN_LEAST = 4, 1024 * 1024
#: Seconds after which a client that is still sending is cut off all the same.
_DRAIN_S = 60.0

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Spool:
    """A body that has been received whole."""

    file: IO[bytes]
    size: int


@contextmanager
def spooled_body(max_bytes: int) -> Iterator[Spool]:
    """
    Receive the body, never holding a large one in memory.

    Raises: ProblemError 413 as soon as it is known to be too large, 415 for what is not JSON, 400 for one cut short.
    """
    _check_type()
    request.max_content_length = max_bytes
    declared = request.content_length
    if declared is not None and declared > max_bytes:
        _drain(declared, max_bytes)
        raise _too_large(max_bytes)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        size = 0
        try:
            while piece := request.stream.read(_PIECE):
                size += len(piece)
                if size > max_bytes:
                    _drain(None, max_bytes)
                    raise _too_large(max_bytes)
                file.write(piece)
        except RequestEntityTooLarge:
            _drain(None, max_bytes)
            raise _too_large(max_bytes) from None
        except ClientDisconnected:
            raise ProblemError(400, "bad-request", "The body stopped coming before its end.") from None
        if declared is not None and size < declared:
            raise ProblemError(400, "bad-request", "The body ended before its Content-Length.")
        file.seek(0)
        yield Spool(file, size)


def read_model(
    model: type[Model],
    *,
    max_bytes: int = MAX_SMALL_BODY_BYTES,
    max_faults: int | None = None,
    also: Callable[[Model], list[Fault]] = lambda _: [],
) -> Model:
    """
    The body of the request as a model; `also` finds what its fields alone do not show.

    Raises: ProblemError 400, 413, 415, or 422 with every fault, those above `max_faults` counted.
    """
    with spooled_body(max_bytes) as body:
        value = _parse(body.file, max_bytes)
    faults = list(unstorable(value)) or shape_faults(model, value)
    read = None if faults else model.model_validate(value)
    if read is not None and not (faults := also(read)):
        return read
    kept = faults[:max_faults]
    more = len(faults) - len(kept)
    raise ProblemError(422, "invalid-body", "The body has faults; nothing was changed.", faults=kept, more=more)


def _parse(file: IO[bytes], max_chars: int) -> Any:
    try:
        reader = JsonReader(file, max_value_chars=max_chars)
        value = reader.value()
        reader.end()
    except JsonError as error:
        raise ProblemError(
            400, "bad-json", f"The body is not JSON: line {error.line}, column {error.column}: {error.detail}."
        ) from None
    return value


def _check_type() -> None:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype != "application/json" or charset not in {"utf-8", "utf8", "us-ascii"}:
        raise ProblemError(415, "not-json", "Send the body as UTF-8 JSON with `Content-Type: application/json`.")
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise ProblemError(415, "not-json", f"Content-Encoding {json.dumps(encoding[:40])} is not taken here.")


def _drain(declared: int | None, max_bytes: int) -> None:
    """Take what is left of a body that is refused, within bounds. Source: RFC 9112 §9.6 (reset before the answer)."""
    most = max(_DRAIN_TIMES * max_bytes, _DRAIN_LEAST)
    if declared is not None and declared > most:
        return
    stream: IO[bytes] = request.environ["wsgi.input"]  # the request's own refuses to be read beyond its limit
    left = most if declared is None else declared
    until = time.monotonic() + _DRAIN_S
    while left > 0 and time.monotonic() < until:
        try:
            piece = stream.read(min(_PIECE, left))
        except OSError:  # it stopped sending: the answer is the same
            return
        if not piece:
            return
        left -= len(piece)


def _too_large(max_bytes: int) -> ProblemError:
    return ProblemError(413, "body-too-large", f"The body is larger than {max_bytes:,} bytes; send it in parts.")
