"""How fast deliveries leave, how long they took, and when it will be over. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

#: Seconds. Bucket n of the ledger's counts holds what took from BOUNDS_S[n - 2] to less than BOUNDS_S[n - 1]; bucket 1
#: begins at 0, the last is open. Each bound is at most 1.5 to 2 times the one before: a percentile is right to a fifth.
BOUNDS_S = (
    0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1200,
    1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 259200,
)  # fmt: skip

#: Full minutes that the sustained rate is the median of: a hiccup of two minutes does not move it.
SUSTAINED_MINUTES = 5
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86400


def percentile(took: Mapping[int, int], share: float) -> float | None:
    """
    Seconds within which `share` of the counted deliveries were handed over; None where there are none.

    Straight lines within a bucket; the open last bucket counts as its lower bound.
    """
    total = sum(took.values())
    if total == 0:
        return None
    wanted, below = share * total, 0
    for bucket in sorted(took):
        count = took[bucket]
        if count and below + count >= wanted:
            low = 0.0 if bucket <= 1 else BOUNDS_S[bucket - 2]
            high = BOUNDS_S[bucket - 1] if bucket <= len(BOUNDS_S) else low
            return low + (high - low) * max(wanted - below, 0) / count
        below += count
    return float(BOUNDS_S[-1])


def run_began(ago: Collection[int], *, gap: int) -> int | None:
    """
    How many minutes ago a run that is not over began, of minutes none of which is more than `gap` after the one before.

    None: there is no such run. Of one that is older than what is looked at, its beginning there.
    """
    began = None
    for minute in sorted(ago):
        if minute - (began or 0) > gap:
            break
        began = minute
    return began


def sustained(full_minutes: Sequence[int], *, running: int = 0) -> float | None:
    """
    What leaves per minute, as the median of the last five full minutes, oldest first.

    `running` is what left in the minute that is not over. Minutes before anything left do not count, and neither does
    the one in which it began. Where most of them are empty and something leaves all the same, it is their mean. None:
    less than a full minute of data. 0: nothing has left for a full minute, nor since.
    """
    last = list(full_minutes[-SUSTAINED_MINUTES:])
    goes = running > 0 or last[-1:] > [0]
    first = next((at for at, count in enumerate(last) if count), None)
    if first is None:
        return None if goes else 0.0
    since = last[first:] if first == 0 else last[first + 1 :]
    if not since:
        return None
    middle = float(median(since))
    return middle if middle or not goes else fmean(since) or None


def quiet_minutes(full_minutes: Sequence[int]) -> int:
    """For how many of the last five full minutes, oldest first, nothing has left, counted from the newest."""
    newest_first = reversed(full_minutes[-SUSTAINED_MINUTES:])
    return next((ago for ago, count in enumerate(newest_first) if count), SUSTAINED_MINUTES)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """When something is over: in about so many seconds, or why nobody can say. `words` are for people."""

    seconds: float | None
    words: str


def time_left(
    *,
    ahead: int,
    per_minute: float | None,
    quiet_min: int = SUSTAINED_MINUTES,
    held_back: str | None = None,
    not_before_s: float = 0,
) -> TimeLeft:
    """
    When the last of `ahead` deliveries will have left at this rate.

    `per_minute` and `quiet_min` are those of `sustained` and `quiet_minutes`.
    `held_back` says in words why nothing may leave, `not_before_s` is the wait of the last one that has a time of its
    own. No number without a full minute of data, at rate 0, or while held back: the reason instead.
    """
    if ahead <= 0 and not_before_s <= 0:
        return TimeLeft(0.0, "nothing due")
    if held_back:
        return TimeLeft(None, held_back)
    if ahead <= 0:
        return TimeLeft(not_before_s, about(not_before_s))
    if per_minute is None:
        return TimeLeft(None, "measuring the rate")
    if per_minute == 0:
        return TimeLeft(None, f"nothing was sent in the last {'minute' if quiet_min == 1 else f'{quiet_min} min'}")
    seconds = max(ahead / per_minute * _MINUTE_S, not_before_s)
    return TimeLeft(seconds, about(seconds))


def ahead_of(mine: int, others: Sequence[int], *, rest: int = 0) -> int:
    """
    How many deliveries leave until the last of mine has, where the sends of a channel take turns.

    `others` are what the other sends still owe; `rest` is the sum over further sends that owe less than this one.
    """
    return mine + sum(min(mine, other) for other in others) + rest


def about(seconds: float) -> str:
    """A rounded time in words: "about 25 min"."""
    if seconds < _MINUTE_S:
        return "under a minute"
    minutes = seconds / _MINUTE_S
    if minutes < 10:  # noqa: PLR2004
        return f"about {round(minutes)} min"
    if minutes < 57.5:  # noqa: PLR2004  # rounds to less than an hour
        return f"about {5 * round(minutes / 5)} min"
    if seconds < 3 * _HOUR_S:
        hours, rest = divmod(10 * round(minutes / 10), 60)
        return f"about {hours} h {rest} min" if rest else f"about {hours} h"
    if seconds < 2 * _DAY_S:
        return f"about {round(seconds / _HOUR_S)} h"
    return f"about {round(seconds / _DAY_S)} days"


def percent_done(settled: int, accepted: int) -> int:
    """Whole per cent, never 100 while anything is open, 0 only while nothing is settled or for less than 1 %."""
    if accepted <= 0 or settled >= accepted:
        return 100
    return min(99, settled * 100 // accepted)
