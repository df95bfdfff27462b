"""The filter of the Failures pages: in links, in forms, and as the ledger takes it. Never an address of somebody."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

from werkzeug.datastructures import MultiDict

from admin.monitoring.bad_filter import wrong_filter
from shared.domain.ids import IdError, delivery_id, parse_delivery_id, parse_send_id
from shared.domain.requeue import REQUEUEABLE, USUAL, FailureFilter
from shared.domain.states import Channel

#: What `status` may say; without it, what is final.
STATUSES = {
    "final": USUAL,
    "any": REQUEUEABLE,
    **{status.value: frozenset({status}) for status in REQUEUEABLE},
}
#: How long ago `since` may say in words.
AGES = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}

_SIGNATURE = re.compile(r"[0-9a-f]{12}")
_RECIPIENT = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[^\x00-\x1f]{1,200}")
_MOST_IDS = 1_000


def read_filter(args: MultiDict[str, str]) -> FailureFilter:
    """
    The filter that an address or a form says.

    Raises: ProblemError 400 naming what is wrong.
    """
    status = args.get("status") or "final"  # a form says nothing where nothing was chosen
    if status not in STATUSES:
        raise wrong_filter("status", f"is one of {', '.join(STATUSES)}")
    ids = _ids(args.getlist("id"))
    return FailureFilter(
        ids=ids,
        send_id=_send(args.get("send")),
        tenant=_matching(args, "tenant", _NAME, "is a tenant's name"),
        channel=_channel(args.get("channel")),
        statuses=STATUSES[status],
        signature=_matching(args, "group", _SIGNATURE, "is the id of a group: 12 hexadecimal digits"),
        since=read_moment(args, "since"),
        provider=_matching(args, "provider", _NAME, "is a provider's name"),
        recipient=_matching(args, "who", _RECIPIENT, "comes from the search by recipient"),
        operation=_operation(args.get("operation")),
        first=_first(args.get("first")),
    )


def as_args(asked: FailureFilter) -> list[tuple[str, str]]:
    """The filter as arguments of an address, or hidden fields of a form."""
    status = next(word for word, statuses in STATUSES.items() if statuses == asked.statuses)
    found = [
        ("status", "" if status == "final" else status),
        ("group", asked.signature),
        ("tenant", asked.tenant),
        ("channel", asked.channel.value if asked.channel else None),
        ("provider", asked.provider),
        ("send", str(asked.send_id) if asked.send_id else None),
        ("since", asked.since.isoformat() if asked.since else None),
        ("who", asked.recipient),
        ("operation", str(asked.operation) if asked.operation else None),
        ("first", str(asked.first) if asked.first else None),
        *(("id", delivery_id(send_id, row_no)) for send_id, row_no in asked.ids),
    ]
    return [(name, value) for name, value in found if value]


def read_moment(args: MultiDict[str, str], name: str) -> datetime | None:
    """
    A moment that an argument says: in ISO 8601 with its zone, or how long ago.

    Raises: ProblemError 400.
    """
    text = args.get(name)
    if not text:
        return None
    if text in AGES:
        return datetime.now(UTC) - AGES[text]
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise wrong_filter(name, f"is a time such as 2026-05-01T10:00:00+00:00, or one of {', '.join(AGES)}")
    return moment


def read_cursor(text: str | None) -> tuple[datetime, UUID, int] | None:
    """
    The last failure of the page before.

    Raises: ProblemError 400.
    """
    if not text:
        return None
    moment, _, last = text.replace(" ", "+").partition("~")
    try:
        at = datetime.fromisoformat(moment)
        if at.tzinfo is None:
            raise ValueError(moment)  # noqa: TRY301  # told like everything that is no cursor
        return (at, *parse_delivery_id(last))
    except (ValueError, IdError):
        raise wrong_filter("before", "comes from the page before this one") from None


def cursor(at: datetime, send_id: UUID, row_no: int) -> str:
    """Name a failure as the last one of a page."""
    return f"{at.isoformat()}~{delivery_id(send_id, row_no)}"


def _matching(args: MultiDict[str, str], name: str, pattern: re.Pattern[str], what: str) -> str | None:
    text = args.get(name)
    if not text:
        return None
    if not pattern.fullmatch(text):
        raise wrong_filter(name, what)
    return text


def _channel(text: str | None) -> Channel | None:
    if not text:
        return None
    try:
        return Channel(text)
    except ValueError:
        raise wrong_filter("channel", "is email or sms") from None


def _send(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return parse_send_id(text)
    except IdError:
        raise wrong_filter("send", "is the id of a send") from None


def _operation(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise wrong_filter("operation", "is the id of an operation") from None


def _ids(texts: list[str]) -> tuple[tuple[UUID, int], ...]:
    if len(texts) > _MOST_IDS:
        raise wrong_filter("id", f"is given at most {_MOST_IDS:,} times; use the filter for more")
    try:
        return tuple(dict.fromkeys(parse_delivery_id(text) for text in texts))
    except IdError:
        raise wrong_filter("id", "is the id of a delivery: the send's id, a dot and a number") from None


def _first(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_IDS):
        raise wrong_filter("first", f"is a number up to {_MOST_IDS:,}")
    return int(text)
