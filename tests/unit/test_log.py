import io
import json
import logging
import logging.handlers
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr

from shared import log

logger = logging.getLogger("tests.log")

ADDRESSES = [
    "550 5.1.1 <jane.doe+tag@example.com>: unknown",
    "The 'To' number +16045550123 is not valid",
    "call (604) 555-0123 back",
    "jane.doe%40example.com",
    '"Jane Doe" <jane.doe@example.com>',
    "jané.doe@exämple.com",
    "https://relay.example.com/u?to=jane.doe%40example.com&x=1",
]
GIVEAWAYS = ("jane.doe", "jané.doe", "6045550123", "555-0123")


class Knobs(BaseModel):
    log_format: str = "json"
    log_level: str = "DEBUG"
    smtp_password: SecretStr = SecretStr("hunter2-hunter2")
    database_url: SecretStr = SecretStr("postgresql://tidings:verysecret@localhost/tidings")


@dataclass
class Written:
    stream: io.StringIO

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def line(self) -> dict[str, object]:
        (line,) = self.lines
        return line


@pytest.fixture
def written() -> Iterator[Written]:
    yield from _configured(Knobs())


@pytest.fixture
def shown() -> Iterator[Written]:
    yield from _configured(Knobs(log_format="text"))


def _configured(knobs: Knobs) -> Iterator[Written]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook, threading.excepthook, sys.unraisablehook)
    result = Written(io.StringIO())
    log.configure(knobs, process="worker_bulk", stream=result.stream)
    yield result
    logging.captureWarnings(capture=False)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    sys.excepthook, threading.excepthook, sys.unraisablehook = before[2:]


def _refuse(text: str) -> None:
    raise ValueError(text)


def _refuse_as_a_consequence(text: str) -> None:
    try:
        _refuse(text)
    except ValueError as fault:
        fault.add_note(f"while sending to {text}")
        raise RuntimeError("outer") from fault


def test_an_event_is_one_json_object_with_its_facts_as_fields(written: Written) -> None:
    logger.warning("circuit_opened", extra={"provider": "ches", "failures": 5})

    line = written.line
    assert line["event"] == "circuit_opened"
    assert (line["level"], line["process"], line["provider"], line["failures"]) == ("WARNING", "worker_bulk", "ches", 5)
    assert str(line["time"]).endswith("+00:00")


def test_what_a_library_says_keeps_its_words(written: Written) -> None:
    logging.getLogger("dramatiq.worker").info("Worker process is ready for %s", "action")

    assert (written.line["event"], written.line["message"]) == ("message", "Worker process is ready for action")


@pytest.mark.parametrize("text", ADDRESSES)
def test_no_address_is_readable_whichever_way_it_is_logged(written: Written, text: str) -> None:
    class Kind(StrEnum):
        ADDRESS = text

    logger.info(text)
    logger.info("refused: %s", text)
    logger.info(
        "refused", extra={"detail": text, "nested": {"a": [text], text: 1}, "kind": Kind.ADDRESS, "any": {text}}
    )
    logger.info("refused", extra={"error": ValueError(text)})
    with log.bind(reply=text):
        logger.info("refused")
    logger.info("refused", stack_info=True)
    try:
        _refuse_as_a_consequence(text)
    except RuntimeError:
        logger.exception("refused")

    assert len(written.lines) == 7
    assert "while sending to" in str(written.lines[-1]["exception"])
    plain = "\n".join(json.dumps(line, ensure_ascii=False) for line in written.lines)
    assert [each for each in GIVEAWAYS if each in plain] == []


@pytest.mark.parametrize("text", ADDRESSES)
def test_no_address_is_readable_in_a_terminal_either(shown: Written, text: str) -> None:
    try:
        _refuse(text)
    except ValueError:
        logger.exception("refused %s", text, extra={"detail": text})

    assert [each for each in GIVEAWAYS if each in shown.text] == []
    assert "Traceback" in shown.text


def test_an_address_cut_by_the_length_limit_is_not_readable_up_to_the_cut(written: Written) -> None:
    for length in range(19_980, 20_001, 3):
        logger.info("refused", extra={"detail": " " * length + "jane.doe@example.com" + " " * 5_000})

    assert "jane" not in written.text
    assert len(written.text) < 7 * 17_000


def test_of_a_long_trace_the_end_is_kept(written: Written) -> None:
    try:
        _refuse("x" * 30_000)
    except ValueError:
        try:
            _refuse("the reason for jane.doe@example.com")
        except ValueError:
            logger.exception("refused")

    assert str(written.line["exception"]).endswith("ValueError: the reason for j***@e***.com")
    assert len(written.text) < 20_000


def test_a_row_that_the_ledger_refused_is_not_told(written: Written) -> None:
    refused = 'violates a rule\nDETAIL:  Failing row contains (1, {"name": "Ada Lovelace"}).'
    try:
        _refuse(refused)
    except ValueError:
        logger.exception("refused")

    assert "violates a rule" in written.text
    assert "Ada" not in written.text


def test_an_unreadable_call_writes_a_line_all_the_same(written: Written) -> None:
    root = logging.getLogger()
    root.handlers[:] = [
        handler for handler in root.handlers if type(handler).__module__ == log.__name__
    ]  # not pytest's
    logger.info("to %s and %s", "jane.doe@example.com")  # noqa: PLE1206  # the fault is the point
    logger.info("to %d", "jane.doe@example.com")
    logger.info("odd \ud83d", extra={"odd": "\ud83d"})

    assert len(written.lines) == 3
    assert "jane.doe" not in written.text


def test_other_handlers_read_a_record_as_its_caller_made_it(written: Written) -> None:
    seen: list[str] = []

    class Other(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(f"{record.getMessage()} {getattr(record, 'count', None)}")

    logging.getLogger().addHandler(Other())
    logger.info("something_happened", extra={"count": 3})

    assert seen == ["something_happened 3"]
    assert written.lines[0]["event"] == "something_happened"


def test_secrets_never_appear_whatever_carries_them(written: Written) -> None:
    logger.info("login failed with hunter2-hunter2 at postgresql://tidings:verysecret@localhost/tidings")
    logger.info("tried", extra={"password": SecretStr("other-secret"), "text": "verysecret"})
    logger.info("tried", extra={"url": "redis://someone:else-password@host:1/0"})
    logger.info("tried", extra={"header": "Authorization: Bearer abcdef123456", "basic": "Basic dXNlcjpwYXNz"})
    logger.info("tried", extra={"key": "tid_live_0123456789abcdef"})
    logging.getLogger("gunicorn.access").info(
        '"GET /admin/sign-in/link/one-time_token.signature?return_to=/x HTTP/1.1"'
    )
    logging.getLogger("gunicorn.access").info('"GET /admin/sign-in/callback?code=the-code&state=the-state HTTP/1.1"')

    for secret in (
        "one-time_token",
        "signature",
        "the-code",
        "the-state",
        "hunter2",
        "verysecret",
        "other-secret",
        "else-password",
        "abcdef123456",
        "dXNlcjpwYXNz",
        "0123456789",
    ):
        assert secret not in written.text, secret


def test_bound_fields_are_on_every_line_of_the_block_and_of_no_other_thread(written: Written) -> None:
    def elsewhere() -> None:
        logger.info("elsewhere")

    send_id = UUID(int=7)
    with log.bind(send_id=send_id), log.bind(chain=2):
        logger.info("inside")
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    logger.info("after")

    inside, other, after = written.lines
    assert (inside["send_id"], inside["chain"]) == (str(send_id), 2)
    assert "send_id" not in other
    assert "send_id" not in after


def test_ids_and_times_stay_readable(written: Written) -> None:
    send_id = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    logger.info("claimed", extra={"send_id": str(send_id), "claim": send_id, "took_ms": 12.5, "none": None, "on": True})

    line = written.line
    assert (line["send_id"], line["claim"]) == (str(send_id), str(send_id))
    assert (line["took_ms"], line["none"], line["on"]) == (12.5, None, True)


def test_libraries_lose_their_own_handlers() -> None:
    own = logging.handlers.BufferingHandler(10)
    logging.getLogger("gunicorn.error").addHandler(own)
    logging.getLogger("gunicorn.error").propagate = False
    for written in _configured(Knobs()):
        logging.getLogger("gunicorn.error").error("Error handling request for jane.doe@example.com")

        assert own.buffer == []
        assert "jane.doe" not in written.text
        assert written.line["logger"] == "gunicorn.error"


def test_in_a_terminal_a_value_cannot_forge_a_line_or_steer_the_cursor(shown: Written) -> None:
    logger.info("said", extra={"who": "x\n12:00 ERROR forged\x1b[2J\u2028"})

    assert len(shown.text.splitlines()) == 1
    assert "\x1b" not in shown.text


UNCAUGHT = """
import logging, sys, threading, warnings
from tests.unit.test_log import Knobs
from shared import log

log.configure(Knobs(), process="clock")
warnings.warn("about jane.doe@example.com")

class Odd:
    def __del__(self):
        raise ValueError("del jane.doe@example.com")

def run():
    raise ValueError("thread jane.doe@example.com")

Odd()
thread = threading.Thread(target=run)
thread.start()
thread.join()
raise ValueError("main jane.doe@example.com hunter2-hunter2")
"""


def test_exceptions_nobody_caught_and_warnings_pass_the_filter_too() -> None:
    done = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, check=False, timeout=60)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["message", "exception_ignored", "thread_died", "exception_uncaught"]
    assert "jane.doe" not in done.stderr
    assert "hunter2" not in done.stderr
    assert done.returncode == 1
