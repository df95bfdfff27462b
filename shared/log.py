"""
What the processes write: one line per event, no address and no secret in it.

Loggers are the standard library's. A line of ours is `log.warning("circuit_opened", extra={"provider": name})`: a
constant event name, its facts as fields. `configure()` installs the only handler; its filter masks message, arguments,
fields, exception text and stack of every record, so no call and no library can forget it.
"""

import copy
import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from typing import IO, Any, Protocol
from uuid import UUID

from pydantic import SecretStr

from shared.domain.masking import mask_text, without_rows
from shared.domain.visible import visible

#: Characters of one text that are read and written; a provider's error page must not become a log file.
_READ_AT_MOST, _WRITE_AT_MOST = 20_000, 16_000
#: Characters; a shorter secret would blot out ordinary words.
_SHORTEST_SECRET = 6
#: Libraries that bring handlers of their own; theirs are taken away, so that everything passes the filter.
_WITH_HANDLERS = ("dramatiq", "gunicorn.error", "gunicorn.access", "werkzeug", "alembic", "sqlalchemy", "psycopg")
#: Libraries whose INFO says what our own events already say, or whose DEBUG writes secrets down.
_CHATTY = ("alembic", "authlib", "urllib3", "psycopg.pool")

_EVENT_NAME = re.compile(r"[a-z][a-z0-9_.]*")
#: A password between `user:` and `@` of a URL; a bearer, basic or API key after its label; a one-time sign-in link, and
#: what a sign-in provider sends back.
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@'\"]*):[^/\s@'\"]+@")
_CREDENTIAL = re.compile(
    r"\b(bearer|basic)\s+[\w.~+/=-]{6,}|\btid_(live|test)_\w+"
    r"|(?<=/sign-in/link/)[^\s\"'?]+|(?<=/sign-in/callback\?)[^\s\"']+",
    re.IGNORECASE,
)
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "fields", "event"}

_context: ContextVar[Mapping[str, object]] = ContextVar("log_context", default={})  # noqa: B039  # never changed


class LogSettings(Protocol):
    """What is read of the settings; every `SecretStr` among them is kept out of the lines too."""

    @property
    def log_format(self) -> str: ...  # noqa: D102
    @property
    def log_level(self) -> str: ...  # noqa: D102


@contextmanager
def bind(**fields: object) -> Iterator[None]:
    """Put fields, such as `send_id=…`, on every line written inside the block by this thread or task."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def configure(settings: LogSettings, *, process: str, stream: IO[str] | None = None) -> None:
    """
    Make this process write its lines to `stream` (default: standard error), and nothing else write any.

    Takes over the root logger, the handlers of libraries, warnings, and exceptions nobody caught. Call it once, after
    libraries have set up theirs; calling it again replaces the handler.

    `process` is the Procfile's name of it, such as `worker_bulk`: a field of every line.
    """
    stream = stream or sys.stderr
    handler = _Handler(stream)
    handler.addFilter(_Masking(_secrets_of(settings)))
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and stream.isatty())
    handler.setFormatter(_Text(colour=stream.isatty()) if as_text else _Json(process=process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    for name in _WITH_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)
    _log_uncaught()


class MaskedHandler(logging.Handler):
    """Masks and handles a copy: a record belongs to whoever made it, and other handlers may read it too."""

    def handle(self, record: logging.LogRecord) -> bool | logging.LogRecord:  # type: ignore[override]
        """Take a record as it was made."""
        return super().handle(copy.copy(record))


def also_to(handler: MaskedHandler) -> None:
    """Let `handler` hear every line too, masked like those of the handler that `configure` installed."""
    root = logging.getLogger()
    for masking in root.handlers[0].filters:
        handler.addFilter(masking)
    root.addHandler(handler)


class _Masking(logging.Filter):
    """Rewrites each record to `event`, message, `fields` and `exc_text` that anybody may read."""

    def __init__(self, secrets: set[str]) -> None:
        super().__init__()
        longest_first = sorted(secrets, key=len, reverse=True)  # else a secret inside another leaves its rest
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if secrets else None

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "fields"):
            return True
        if not record.args and isinstance(record.msg, str) and _EVENT_NAME.fullmatch(record.msg):
            record.event, message = record.msg, ""
        else:
            record.event, message = "message", self._text(_message_of(record))
        record.msg, record.args = message, None
        fields = {**_context.get(), **{key: value for key, value in record.__dict__.items() if key not in _STANDARD}}
        record.fields = {key: self._value(value) for key, value in fields.items()}
        for key in fields:
            record.__dict__.pop(key, None)
        parts = []
        if record.exc_info and record.exc_info[0] is not None:
            parts.append("".join(traceback.format_exception(*record.exc_info)).rstrip())
        elif record.exc_text:
            parts.append(record.exc_text)
        if record.stack_info:
            parts.append(record.stack_info)
        record.exc_text = self._text("\n".join(parts), keep_end=True) if parts else None
        record.exc_info = record.stack_info = None
        return True

    def _value(self, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Enum):
            return self._value(value.value)
        if isinstance(value, UUID | datetime):
            return str(value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self._value(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(each) for each in value]
        return self._text(str(value))

    def _text(self, text: str, *, keep_end: bool = False) -> str:
        text = without_rows(text)
        if len(text) > _READ_AT_MOST:  # of a trace the end says what happened
            text = text[-_READ_AT_MOST:] if keep_end else text[:_READ_AT_MOST]
        if self._secrets:
            text = self._secrets.sub("***", text)
        if "://" in text:
            text = _URL_PASSWORD.sub(r"\1:***@", text)
        text = mask_text(_CREDENTIAL.sub("***", text), limit=2 * _READ_AT_MOST)
        if len(text) > _WRITE_AT_MOST:  # cut again: the first cut may have left half an address at its edge
            text = "…" + text[-_WRITE_AT_MOST:] if keep_end else text[:_WRITE_AT_MOST] + "…"
        return text


class _Handler(MaskedHandler, logging.StreamHandler[IO[str]]):
    """Writes to one stream; a line that cannot be written is named without its content."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name; its own prints arguments
        fault = sys.exception()
        if not isinstance(fault, BrokenPipeError | ValueError):
            sys.stderr.write(f"a log line from {record.name}:{record.lineno} was lost: {type(fault).__name__}\n")


class _Json(logging.Formatter):
    """One JSON object per line, for machines."""

    def __init__(self, *, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": record.__dict__.get("event", "message"),
        }
        if record.msg:
            line["message"] = record.msg
        line |= {"process": self._process, "pid": record.process, "thread": record.threadName, "logger": record.name}
        line |= {key: value for key, value in _fields(record).items() if key not in line}
        if record.exc_text:
            line["exception"] = record.exc_text
        # Lone surrogates cannot be encoded: `ensure_ascii` writes them, like anything else, as escapes.
        return json.dumps(line, ensure_ascii=True, default=str, separators=(",", ":"))


class _Text(logging.Formatter):
    """A line for people. Control characters are shown, not obeyed: a value cannot forge a line or move the cursor."""

    _COLOURS: Mapping[int, str] = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        event = record.__dict__.get("event", "message")
        said = record.msg if event == "message" else event
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        line = visible(f"{clock} {record.levelname:<7} {said}  {fields}".rstrip())
        if self._colour and (start := self._COLOURS.get(record.levelno)):
            line = f"{start}{line}\x1b[0m"
        if record.exc_text:
            line += "".join(f"\n    {visible(each)}" for each in record.exc_text.splitlines())
        return line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = record.__dict__.get("fields")
    return fields if isinstance(fields, dict) else {}


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} (its arguments do not fit)"


def _secrets_of(settings: LogSettings) -> set[str]:
    """Every secret's value, and the passwords inside the addresses of the stores."""
    found = set()
    for value in vars(settings).values():
        if isinstance(value, SecretStr):
            secret = value.get_secret_value()
            password = re.search(r"://[^/@]*:([^/]+)@", secret)
            found |= {secret, password[1] if password else secret}
    return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


def _log_uncaught() -> None:
    """Send exceptions that end a thread or the process through the filter too; Python would print them as they are."""
    log = logging.getLogger("uncaught")

    def from_main(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("exception_uncaught", exc_info=(kind, error, trace))

    def from_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else ""
            log.critical(
                "thread_died", extra={"died": name}, exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
            )

    def from_nowhere(args: Any) -> None:
        if args.exc_value is not None:
            log.error("exception_ignored", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))

    sys.excepthook, threading.excepthook, sys.unraisablehook = from_main, from_thread, from_nowhere
