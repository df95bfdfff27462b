"""The sandbox provider's inbox."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_KEEP = statement("keep_sandbox_messages")
_FIND = statement("find_sandbox_messages")
_TRIM = statement("trim_sandbox_messages")


@dataclass(frozen=True, slots=True)
class SandboxMessage:
    """One message the sandbox was given; `send_id` and `row_no` are the delivery's, None of what is none."""

    key: UUID
    channel: str
    address: str
    sender: str | None
    reply_to: str | None
    subject: str | None
    text: str | None
    html: str | None
    send_id: UUID | None = None
    row_no: int | None = None


def keep(connection: Connection, messages: Sequence[SandboxMessage]) -> None:
    """Keep messages; one that is there already stays as it is."""
    connection.execute(
        _KEEP,
        {
            "keys": [m.key for m in messages],
            "channels": [m.channel for m in messages],
            "addresses": [m.address for m in messages],
            "senders": [m.sender for m in messages],
            "reply_tos": [m.reply_to for m in messages],
            "subjects": [m.subject for m in messages],
            "texts": [m.text for m in messages],
            "htmls": [m.html for m in messages],
            "sends": [m.send_id for m in messages],
            "rows": [m.row_no for m in messages],
        },
    )


def find(connection: Connection, keys: Sequence[UUID]) -> tuple[list[UUID], datetime | None]:
    """Those of the keys that are kept, and since when nothing was forgotten; None: nothing ever was."""
    row = connection.execute(_FIND, {"keys": list(keys)}).fetchone()
    return ([], None) if row is None else (row[0] or [], row[1])


def trim(connection: Connection, *, keep_messages: int, keep_hours: int, limit: int) -> int:
    """Remove at most `limit` messages beyond the count or the age; the number removed."""
    return connection.execute(_TRIM, {"keep": keep_messages, "keep_hours": keep_hours, "limit": limit}).rowcount
