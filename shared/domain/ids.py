"""Identities: of sends (time-ordered), of deliveries (send and row), and the key a provider may see."""

import secrets
import time
from uuid import UUID, uuid5

#: Namespace of delivery keys; fixed for ever: a change would defeat every provider's duplicate check.
_DELIVERY_KEYS = UUID("5b0c6f5e-54a1-4d0f-9a33-6e3f2f0d8a11")


class IdError(ValueError):
    """The text is not an id of the kind that was expected."""


def new_send_id() -> UUID:
    """Make a UUID version 7: milliseconds first, so that newer sends sort later. Source: RFC 9562 §5.7."""
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return UUID(int=value | 0b10 << 62 | secrets.randbits(62))


def id_of_age(seconds: float) -> UUID:
    """The lowest id that a send accepted so many seconds ago may have."""
    return UUID(int=max(0, time.time_ns() // 1_000_000 - round(seconds * 1000)) << 80)


def delivery_id(send_id: UUID, row_no: int) -> str:
    """The public id of a delivery: `<send id>.<row number>`."""
    return f"{send_id}.{row_no}"


def parse_delivery_id(text: str) -> tuple[UUID, int]:
    """
    Take a public delivery id apart.

    Raises: IdError.
    """
    send, _, row = text.partition(".")
    if not (row.isascii() and row.isdigit() and len(row) <= 9):  # noqa: PLR2004  # fits an int4 column
        raise IdError("a delivery id looks like <send id>.<row number>")
    return parse_send_id(send), int(row)


def parse_send_id(text: str) -> UUID:
    """
    Read a send id in its canonical form.

    Raises: IdError.
    """
    try:
        value = UUID(text)
    except ValueError:
        raise IdError("a send id is a UUID") from None
    if str(value) != text.lower():
        raise IdError("a send id is a UUID in its usual form with hyphens")
    return value


def delivery_key(send_id: UUID, row_no: int, epoch: int) -> UUID:
    """
    The idempotency key of a delivery: the same for every machine retry, another after a person's requeue.

    Every provider-side identity derives from it: Message-ID, CHES tag, ACS repeatability id, callback id.
    """
    return uuid5(_DELIVERY_KEYS, f"{send_id}.{row_no}:{epoch}")
