"""Figures as people read them. Pure."""

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
#: Below this many seconds or minutes the smaller unit is said too.
_FEW = 10
#: Seconds below which a span would read 0.0.
_SHORTEST_S = 0.05
#: Counts from here on are said in thousands or millions where there is little room.
_THOUSAND, _MILLION = 1_000, 1_000_000


def number(value: float | None) -> str:
    """1234567 → "1,234,567"; None → "–"."""
    return "–" if value is None else f"{value:,.0f}"


def short_number(value: float | None) -> str:
    """1234567 → "1.2 M", 45210 → "45 k", 9999 → "9,999"; None → "–"."""
    if value is None:
        return "–"
    if value >= _MILLION:
        return f"{value / _MILLION:.1f} M"
    return f"{value / _THOUSAND:.0f} k" if value >= _FEW * _THOUSAND else number(value)


def rate(per_second: float | None) -> str:
    """Messages per second as "120/s", "3.5/s", below one a second as "20/min"; None → "–"."""
    if per_second is None:
        return "–"
    if per_second == 0:
        return "0/s"
    if per_second < 1:
        per_minute = per_second * _MINUTE
        return f"{per_minute:.0f}/min" if per_minute >= 1 else "under 1/min"
    return f"{per_second:.1f}/s" if per_second < _FEW else f"{per_second:,.0f}/s"


def duration(seconds: float | None) -> str:
    """Seconds as "12 s", "4 min", "1 h 5 min", "3 days"; None → "–". Negative ones count as 0."""
    if seconds is None:
        return "–"
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        hours, minutes = divmod(whole // _MINUTE, 60)
        return f"{hours} h {minutes} min" if minutes and hours < _FEW else f"{hours} h"
    days = whole // _DAY
    return "1 day" if days == 1 else f"{days} days"


def short_duration(seconds: float | None) -> str:
    """A span that may be below a second: "under 0.1 s", "0.4 s", "2.1 s", "45 s", "4 min"; None → "–"."""
    if seconds is None or seconds >= _FEW:
        return duration(seconds)
    return f"{seconds:.1f} s" if seconds >= _SHORTEST_S else "under 0.1 s"


def skew(seconds: float) -> str:
    """How far one clock is from another: "+0.3 s", "-12.0 s", "0.0 s"."""
    tenths = round(seconds, 1)
    return f"{tenths:+.1f} s" if tenths else "0.0 s"


def percent(part: float, whole: float) -> str:
    """A share as "3.4 %"; never "0 %" for something nor "100 %" for less than all; "–" of nothing."""
    if whole <= 0:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.1:  # noqa: PLR2004
        return "under 0.1 %"
    if 99.9 < share < 100:  # noqa: PLR2004
        return "99.9 %"
    return f"{share:.0f} %" if share in {0, 100} else f"{share:.1f} %"


def ago(moment: datetime, now: datetime) -> str:
    """How far a moment is from now: "just now", "4 min ago", "in 2 h"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < _FEW:
        return "just now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"
