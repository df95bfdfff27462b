"""A send's books as a small table, and what a person should know beside them."""

from collections.abc import Mapping
from typing import Any

from admin.cli.screen import cell
from admin.cli.table import as_table

#: In the order of the balance: accepted = all that follow.
COLUMNS = ("sent", "failed", "dead_lettered", "discarded", "suppressed", "cancelled", "expired", "unsure", "owed")
_CHANNELS = {"email": "e-mail", "sms": "SMS"}


def settled_in(send: Mapping[str, Any]) -> int:
    """Deliveries of a send that are settled, over all its channels."""
    return sum(books["accepted"] - books["owed"] - books["unaccounted"] for books in send["books"].values())


def accepted_in(send: Mapping[str, Any]) -> int:
    """Deliveries of a send, over all its channels."""
    return sum(books["accepted"] for books in send["books"].values())


def is_over(send: Mapping[str, Any]) -> bool:
    """Whether nothing more will happen to a send by itself."""
    return send["status"] in {"completed", "cancelled"} and not any(books["owed"] for books in send["books"].values())


def books_table(send: Mapping[str, Any]) -> str:
    """The books per channel, with a line for any difference; columns that are 0 everywhere are left out."""
    books = {_CHANNELS.get(channel, channel): counts for channel, counts in send["books"].items()}
    # An older service knows fewer columns.
    shown = [name for name in COLUMNS if name in {"sent", "owed"} or any(c.get(name) for c in books.values())]
    head = ("channel", "accepted", *(name.replace("_", " ") for name in shown))
    rows = [
        (channel, counts["accepted"], *(counts.get(name, 0) for name in shown)) for channel, counts in books.items()
    ]
    lost = sum(counts["unaccounted"] for counts in books.values())
    return as_table(head, rows) + (
        f"\nUNACCOUNTED: {lost:,}. This is a fault of Tidings; please report it." if lost else ""
    )


def summary(send: Mapping[str, Any]) -> str:
    """Name, state, times, books."""
    lines = [f"Send {send['id']}" + (f" “{cell(send['name'])}”" if send.get("name") else "")]
    segments = f"{send['segments']:,} SMS segment{'' if send['segments'] == 1 else 's'}" if send["segments"] else ""
    state = f"{send['status']}: {cell(send['pause_reason'])}" if send.get("pause_reason") else send["status"]
    lines.append(f"{state} · {send['mode']} key" + (f" · {segments}" if segments else ""))
    times = [
        f"{word} {_moment(send[field])}"
        for field, word in (
            ("created_at", "accepted"), ("send_at", "to begin"), ("started_at", "begun"),
            ("completed_at", "completed"), ("cancelled_at", "cancelled"), ("valid_until", "valid until"),
        )
        if send.get(field)
    ]  # fmt: skip
    lines.append(" · ".join(times))
    dropped = sum(send["duplicates"].values())
    if dropped:
        lines.append(
            f"{dropped:,} duplicate {'address was' if dropped == 1 else 'addresses were'} dropped at acceptance"
        )
    return "\n".join([*lines, "", books_table(send), *_owed_lines(send)])


def _owed_lines(send: Mapping[str, Any]) -> list[str]:
    """What is owed waits for, a line a channel; none where nothing is owed."""
    from admin.cli.balance import WORDS

    lines = []
    for channel, books in send["books"].items():
        where = books.get("owed_where", {})
        parts = [f"{where[name]:,} {words}" for name, words in WORDS.items() if where.get(name)]
        if parts:
            lines.append(f"owed on {_CHANNELS.get(channel, channel)}: {', '.join(parts)}")
    return ["", *lines] if lines else []


def _moment(text: str) -> str:
    from datetime import datetime

    return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"
