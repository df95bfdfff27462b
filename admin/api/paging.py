"""Query strings of lists, and opaque cursors: a keyset place, meaning something to us alone."""

import base64
import binascii
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from admin.api.limits import DEFAULT_PAGE, MAX_PAGE
from admin.errors import ProblemError
from shared.domain.states import DeliveryStatus, SendStatus
from shared.domain.text_checks import check_storable


def _page_size(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 6:  # noqa: PLR2004
        return int(value)
    return value


class Query(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: str | None = Field(None, max_length=100, description="`next_cursor` of the page before.")
    limit: Annotated[int, BeforeValidator(_page_size)] = Field(
        DEFAULT_PAGE, ge=1, le=MAX_PAGE, description="Entries of the page."
    )


class SendQuery(Query):
    """Which sends to list."""

    status: SendStatus | None = None


class DeliveryQuery(Query):
    """Which deliveries to list."""

    status: DeliveryStatus | None = None


def encode_cursor(place: UUID | int) -> str:
    """A cursor for what comes after this place."""
    raw = place.bytes if isinstance(place, UUID) else place.to_bytes(4, "big")
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def encode_key_cursor(key: str) -> str:
    """A cursor for what comes after this key."""
    return base64.urlsafe_b64encode(key.encode()).decode("ascii").rstrip("=")


def decode_key_cursor(cursor: str) -> str:
    """
    The key a cursor stands at.

    Raises: ProblemError 422.
    """
    try:
        key = _decode(cursor, None).decode()
    except UnicodeDecodeError:
        raise _bad_cursor() from None
    if check_storable(key) is not None:
        raise _bad_cursor()
    return key


def decode_send_cursor(cursor: str) -> UUID:
    """
    The send a cursor stands at.

    Raises: ProblemError 422.
    """
    return UUID(bytes=_decode(cursor, 16))


def decode_row_cursor(cursor: str) -> int:
    """
    The row number a cursor stands at.

    Raises: ProblemError 422.
    """
    value = int.from_bytes(_decode(cursor, 4), "big")
    if value >= 1 << 31:
        raise _bad_cursor()
    return value


def _decode(cursor: str, length: int | None) -> bytes:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _bad_cursor() from None
    if length is not None and len(raw) != length:
        raise _bad_cursor()
    return raw


def _bad_cursor() -> ProblemError:
    return ProblemError(422, "invalid-query", "The cursor is not one this list gave out.")
