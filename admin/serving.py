"""
gunicorn's own process: `gunicorn --config python:admin.serving`. It writes in our format, and says why it ends.

It tells of each worker that ended, with its code or signal, in error lines of its own; these pass our handler too.
"""

import logging
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


logger_class = OurLogger


def post_worker_init(worker: Any) -> None:
    """Let open streams know when the worker is told to stop: otherwise it would wait for their browsers to leave."""
    from admin.monitoring import stream  # not in gunicorn's own process

    stream.hub(worker.wsgi).is_alive = lambda: bool(worker.alive)
