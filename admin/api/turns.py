"""Large submissions are stored a few at a time: small ones find a connection, and memory has a bound. ADR-0006."""

from collections.abc import Iterator
from contextlib import contextmanager

from admin.errors import ProblemError
from admin.extensions import Services

#: Bytes of a body, some 20,000 recipients.
_LARGE = 1024 * 1024
#: Seconds; with the submission's own below the 30 that a platform's router grants a request.
_PATIENCE_S = 20.0
_RETRY_AFTER_S = 2


@contextmanager
def turn(services: Services, size: int) -> Iterator[None]:
    """
    Wait until a submission of this size may be stored, and hold its turn meanwhile.

    Raises: ProblemError 503 when the turn does not come in time.
    """
    if size < _LARGE:
        yield
        return
    if not services.large_submissions.acquire(timeout=_PATIENCE_S):
        raise ProblemError(
            503,
            "unavailable",
            "Other large submissions are being stored; nothing of this one was. Repeat it.",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        )
    try:
        yield
    finally:
        services.large_submissions.release()
