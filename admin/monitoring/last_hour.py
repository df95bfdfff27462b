"""The section `last_hour`: what was done, how fast and how well, against the hour before; of live sends."""

from collections.abc import Callable, Iterable, Mapping

from admin.monitoring.flow import MINUTES_READ, past_minutes
from admin.monitoring.judging import thresholds_of
from admin.monitoring.snapshot import Data, Section, Sources, add_section
from shared.domain.health_facts import Thresholds
from shared.domain.pace import SUSTAINED_MINUTES, percentile, sustained
from shared.domain.progress import change
from shared.domain.states import Mode
from shared.domain.words import rate, short_duration
from shared.ledger import minutes
from shared.ledger.minutes import Counts, Took, summed

_HOUR = 60


def sample(sources: Sources) -> Data:
    """Six figures with 60 points each, the last of them the minute that is still filling."""
    past = [minute for minute in sources.once(past_minutes) if minute.mode is Mode.LIVE]
    by_minute: dict[int, Counts] = {}
    for minute in past:
        by_minute[minute.ago] = by_minute.get(minute.ago, Counts()) + minute.counts
    with sources.connection() as connection:
        took = [each for each in minutes.took(connection, minutes=MINUTES_READ, span=1) if each.mode is Mode.LIVE]
    return {
        "sent": _counted(by_minute, lambda counts: counts.sent),
        "failed": _failed(by_minute, thresholds_of(sources.settings)),
        "took": _times(took),
        "rate": _rate(by_minute),
        "requests": _counted(by_minute, lambda counts: counts.requests),
        "dead_lettered": _counted(by_minute, lambda counts: counts.dead_lettered),
    }


def _counted(by_minute: Mapping[int, Counts], count: Callable[[Counts], int]) -> Data:
    """The running minute and the 59 before it, in all and each; 60 full minutes are compared with the 60 before."""
    points = [count(by_minute.get(ago, Counts())) for ago in range(_HOUR - 1, -1, -1)]
    full = sum(count(by_minute.get(ago, Counts())) for ago in range(1, _HOUR + 1))
    before = sum(count(by_minute.get(ago, Counts())) for ago in range(_HOUR + 1, 2 * _HOUR + 1))
    return {
        "now": sum(points),
        "change": change(full or sum(points), before),
        "points": points,
    }


def _failed(by_minute: Mapping[int, Counts], limits: Thresholds) -> Data:
    """`failed` and `dead_lettered` against all that reached an end at a provider."""
    counts = summed(by_minute.get(ago, Counts()) for ago in range(_HOUR))
    bad = counts.failed + counts.dead_lettered
    attempts = counts.sent + bad
    kind = "ok"
    if attempts >= limits.failure_attempts_min and bad * 100 > limits.failure_percent * attempts:
        kind = "bad" if bad * 100 > limits.failure_critical_percent * attempts else "warn"
    return {
        **_counted(by_minute, lambda each: each.failed + each.dead_lettered),
        "attempts": attempts,
        "percent": 100 * bad / attempts if attempts else None,
        "kind": kind,
    }


def _rate(by_minute: Mapping[int, Counts]) -> Data:
    """Messages per second, sustained; each point is that of its minute."""
    sent = [by_minute.get(ago, Counts()).sent for ago in range(2 * _HOUR, 0, -1)]
    running = by_minute.get(0, Counts()).sent
    now, before = sustained(sent, running=running), sustained(sent[:-_HOUR])
    return {
        "now": None if now is None else now / 60,
        "change": f"{rate(before / 60)} an hour ago" if before else "nothing an hour ago",
        "points": [(sustained(sent[: len(sent) - ago]) or 0) / 60 for ago in range(_HOUR - 1, -1, -1)],
        "minutes": SUSTAINED_MINUTES,
    }


def _times(took: list[Took]) -> Data:
    """Seconds from acceptance, or the send's own time, to the provider: half of them, and 95 %, took no longer."""
    hour = _merged(each for each in took if each.ago < _HOUR)
    before = percentile(_merged(each for each in took if each.ago >= _HOUR), 0.5)
    by_minute = {ago: _merged(each for each in took if each.ago == ago) for ago in range(_HOUR)}
    return {
        "median": percentile(hour, 0.5),
        "p95": percentile(hour, 0.95),
        "change": f"{short_duration(before)} before" if before is not None else "none before",
        "points": [percentile(by_minute[ago], 0.5) for ago in range(_HOUR - 1, -1, -1)],
    }


def _merged(found: Iterable[Took]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in found:
        for bucket, count in each.buckets.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


add_section(Section("last_hour", "postgres", sample))
