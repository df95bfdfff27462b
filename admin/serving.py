"""
gunicorn's own process: `gunicorn --config python:admin.serving`. It writes in our format, and says why it ends.

It tells of each worker that ended, with its code or signal, in error lines of its own; these pass our handler too.
"""

from typing import Any

from shared import log, settings


def on_starting(server: Any) -> None:  # noqa: ARG001  # gunicorn's signature
    """Once, before the workers are forked; they configure theirs anew (`admin.wsgi`)."""
    try:
        loaded = settings.load()
    except settings.SettingsError:
        return  # the first worker says so in full, and gunicorn ends
    log.configure(loaded, process="web main")
