"""Last words: a process that ends with anything but 0 says by which signal, with which code and after which error."""

import faulthandler
import logging
import multiprocessing
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util

from shared.log import MaskedHandler, also_to

_log = logging.getLogger(__name__)

#: How dramatiq's main process tells of a worker's end; negative codes are signals. Source: dramatiq 2.2, cli.py.
_CHILD_ENDED = re.compile(r"\(code (-?\d+)\)")
#: After everything else that ends with a forked process.
_LAST = -1_000


class _LastError(MaskedHandler):
    """Remembers the newest error that was written."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        event = record.__dict__.get("event", "message")
        said = record.msg if event == "message" else event
        trace = (record.exc_text or "").splitlines()
        self.text = f"{said}: {trace[-1]}" if trace else str(said)


@contextmanager
def reported() -> Iterator[None]:
    """Around a process's main function, once its log is configured: tell of an end that is not a clean one."""
    last = _watch()
    try:
        yield
    except BaseException as error:
        _report(error, last)
        raise


def report_at_end() -> None:
    """The same for a worker process that dramatiq forked: its main function is not ours."""
    last = _watch()
    if multiprocessing.parent_process() is not None:
        # Run inside the `finally` that every forked process ends with: the exception that ends it is the current one.
        util.Finalize(None, lambda: _report(sys.exc_info()[1], last), exitpriority=_LAST)


def _watch() -> _LastError:
    faulthandler.enable()  # a crash in a library in C: the stack, since nobody can say anything afterwards
    last = _LastError()
    also_to(last)
    return last


def _report(error: BaseException | None, last: _LastError) -> None:
    code = _code_of(error)
    if code == 0:
        return
    ended = _CHILD_ENDED.search(last.text)
    child_code = int(ended[1]) if ended else 0
    number = -child_code if child_code < 0 else 0
    _log.critical(
        "process_ended_badly",
        extra={
            "code": code,
            "signal": signal.Signals(number).name if number else "",
            "error": type(error).__name__ if error is not None and not isinstance(error, SystemExit) else "",
            "last_error": last.text,
        },
    )


def _code_of(error: BaseException | None) -> int:
    """The exit code that an exception which leaves the main function means."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    return 1
