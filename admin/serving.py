"""
gunicorn's own process: `gunicorn --config python:admin.serving`. It writes in our format, and says why it ends.

It tells of each worker that ended, with its code or signal, in error lines of its own; these pass our handler too.
"""

import logging
import socket
import struct
import sys
from typing import Any

from gunicorn.glogging import Logger  # type: ignore[import-untyped]  # it has no types

from shared import log, settings


class OurLogger(Logger):  # type: ignore[misc]  # as above
    """gunicorn's, with our handler in place of its own from its first line on, and again after each reload."""

    def setup(self, cfg: Any) -> None:
        """Set gunicorn's logging up, then take its handlers away; LOG_LEVEL decides what is written."""
        super().setup(cfg)
        try:
            loaded = settings.load()
        except settings.SettingsError as error:
            sys.exit(str(error))  # before a worker is started: gunicorn itself would end with 4, and say less
        log.configure(loaded, process="web main")  # the workers configure theirs anew (`admin.wsgi`)
        self.error_log.setLevel(logging.NOTSET)

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """A client that stopped sending (`STALL_S`) is no fault of ours: it fills no log."""
        if isinstance(sys.exc_info()[1], BlockingIOError):
            self.debug("a client stopped sending in the middle of a request")
        else:
            super().exception(msg, *args, **kwargs)


logger_class = OurLogger

#: Seconds for which a stopping worker keeps connections on which nothing is asked: long enough for a request that is on
#: its way. gunicorn's own 2 s are most of what a stop may take while pages are open.
LINGER_S = 0.5

#: Whole seconds for which a client may be silent in the middle of a request. gunicorn would wait for ever, and each
#: such client, or one whose network went away, would keep a thread.
STALL_S = 30


def post_worker_init(worker: Any) -> None:
    """Let open streams know when the worker is told to stop; wait for no browser to leave, and for no silent client."""
    from gunicorn.workers import gthread  # type: ignore[import-untyped]  # as above

    from admin.monitoring import stream  # not in gunicorn's own process

    stream.hub(worker.wsgi).is_alive = lambda: bool(worker.alive)
    gthread.STOP_KEEPALIVE_LINGER = LINGER_S
    for listener in worker.sockets:  # connections have it from the socket that accepts them
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", STALL_S, 0))
