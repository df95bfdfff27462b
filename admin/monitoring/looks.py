"""What templates may call beside Flask's own: words, pictures, moments, and addresses of static files."""

import math
from datetime import UTC, datetime, timedelta

from flask import Flask

from admin.monitoring.compressing import asset
from admin.monitoring.drawing import bar, sparkline
from shared.domain import words
from shared.domain.masking import mask_text
from shared.domain.states import DeliveryStatus

#: The shape and colour of a delivery's state, on every page alike.
STATUS_KINDS = {
    DeliveryStatus.OWED: "off",
    DeliveryStatus.SENDING: "busy",
    DeliveryStatus.RETRYING: "warn",
    DeliveryStatus.SENT: "ok",
    DeliveryStatus.FAILED: "bad",
    DeliveryStatus.DEAD_LETTERED: "bad",
    DeliveryStatus.UNSURE: "warn",
    DeliveryStatus.SUPPRESSED: "off",
    DeliveryStatus.CANCELLED: "off",
    DeliveryStatus.EXPIRED: "off",
}


def ago(iso: str) -> str:
    """How far from now a moment is."""
    return words.ago(_moment(iso), datetime.now(UTC))


def until(iso: str) -> str:
    """How many seconds there are until a moment: "in 8 s"; once it has come, "at any moment"."""
    seconds = math.ceil((_moment(iso) - datetime.now(UTC)).total_seconds())
    return f"in {seconds} s" if seconds > 0 else "at any moment"


def by_this_clock(moment: datetime, read_at: datetime) -> datetime:
    """A moment of the ledger, just read at `read_at` of its clock, by that of this process, which may be wrong."""
    ahead_s = (datetime.now(UTC) - read_at).total_seconds()
    return moment + timedelta(seconds=math.floor(ahead_s + 0.1))  # part of a second went by since it was read


def exact(iso: str) -> str:
    """A moment to the second, in UTC."""
    return _moment(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def time_of_day(iso: str) -> str:
    """The time of a moment, in UTC."""
    return _moment(iso).astimezone(UTC).strftime("%H:%M:%S")


def clock_words(iso: str) -> str:
    """A moment as a clock shows it, with its day unless that is today: "09:00 UTC", "Tue 1 Dec 09:00 UTC"."""
    moment = _moment(iso).astimezone(UTC)
    same_day = moment.date() == datetime.now(UTC).date()
    return f"{moment:%H:%M} UTC" if same_day else f"{moment:%a} {moment.day} {moment:%b %H:%M} UTC"


def as_iso(moment: str | datetime) -> str:
    """A moment for `datetime=`: seconds, UTC."""
    return _moment(moment).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(given: str | datetime) -> datetime:
    return given if isinstance(given, datetime) else datetime.fromisoformat(given)


def install(app: Flask) -> None:
    """Give them to every template, macros included."""
    app.jinja_env.globals.update(
        asset=asset,
        ago=ago,
        until=until,
        by_this_clock=by_this_clock,
        exact=exact,
        time_of_day=time_of_day,
        as_iso=as_iso,
        clock_words=clock_words,
        masked=mask_text,
        draw_sparkline=sparkline,
        draw_bar=bar,
        status_kinds=STATUS_KINDS,
        number_words=words.number,
        short_number_words=words.short_number,
        rate_words=words.rate,
        duration_words=words.duration,
        short_duration_words=words.short_duration,
        skew_words=words.skew,
        percent_words=words.percent,
    )
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
