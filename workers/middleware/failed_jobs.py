"""Messages that ended in an exception or were set aside, written down for the Failures page."""

import logging
from typing import Any
from uuid import UUID

import dramatiq

from shared.domain.masking import mask_text, without_rows
from shared.ledger import failed_jobs
from shared.ledger.db import POSTGRES_AWAY
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)


class FailedJobs(dramatiq.Middleware):
    """Write down what went wrong with a message. Its work is in the ledger and is found without this."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:  # noqa: ARG002
        """An actor raised."""
        if exception is not None:
            self.note(message, kind="raised", error=f"{type(exception).__name__}: {exception}")
            message.is_noted = True

    def after_nack(self, broker: Any, message: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """A message was refused; without an exception before, because this process has no such actor."""
        if not getattr(message, "is_noted", False):
            error = "there is no job of this name here: it was enqueued by another version"
            self.note(message, kind="set_aside", error=error)

    def note(self, message: Any, *, kind: str, error: str, starts: int | None = None) -> None:
        """Write a message down as `raised` or `set_aside`; while Postgres is away the log has it alone."""
        try:
            with self._runtime.ledger.autocommit() as connection:
                failed_jobs.record(
                    connection,
                    queue=message.queue_name,
                    job=message.actor_name,
                    kind=kind,
                    send_id=_send_of(message),
                    error=mask_text(without_rows(error)),
                    starts=starts,
                )
        except POSTGRES_AWAY as away:
            _log.warning("failed_job_not_noted", extra={"job": message.actor_name, "error": type(away).__name__})


def _send_of(message: Any) -> UUID | None:
    try:
        return UUID(message.kwargs["send_id"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
