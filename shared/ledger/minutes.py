"""What happened, minute by minute and in total: written with the edges themselves, read by the pages and metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from shared.domain.states import Channel, Mode
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_FOLD = statement("fold_minutes")
_FOLD_OLD = statement("fold_old_minutes")
_MINUTES = statement("select_minutes")
_TOOK = statement("select_took")
_TOTALS = statement("select_count_totals")


@dataclass(frozen=True, slots=True)
class Counts:
    """
    How often what happened, each a way into a state: it never goes back.

    `requests` are sends, everything else deliveries; `calls` ended at a provider. `resolved` left `unsure` by proof,
    `requeued` left a failure by a person, so that failed + dead_lettered + unsure − resolved − requeued are so now.
    """

    requests: int = 0
    accepted: int = 0
    calls: int = 0
    sent: int = 0
    failed: int = 0
    dead_lettered: int = 0
    unsure: int = 0
    suppressed: int = 0
    cancelled: int = 0
    expired: int = 0
    retried: int = 0
    throttled: int = 0
    requeued: int = 0
    resolved: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNTS))


COUNTS = tuple(each.name for each in fields(Counts))


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of one channel, `ago` minutes before the running one (0)."""

    ago: int
    mode: Mode
    channel: Channel
    counts: Counts


@dataclass(frozen=True, slots=True)
class Took:
    """How many deliveries of some minutes were handed over within each bucket of `pace.BOUNDS_S`."""

    ago: int
    mode: Mode
    channel: Channel
    buckets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Total:
    """
    All that ever happened over one provider; "" where none was involved.

    `took` counts the sent ones by bucket.
    """

    mode: Mode
    channel: Channel
    provider: str
    counts: Counts
    took: Mapping[int, int] = field(default_factory=dict)


def last(connection: Connection, *, minutes: int) -> list[Minute]:
    """The running minute and the `minutes` before it; a minute without anything is not there."""
    rows = connection.execute(_MINUTES, {"minutes": minutes})
    return [Minute(row[0], Mode(row[1]), Channel(row[2]), Counts(*row[3:])) for row in rows]


def took(connection: Connection, *, minutes: int, span: int) -> list[Took]:
    """How long deliveries took, in spans of `span` minutes; `ago` counts spans, 0 is the running one."""
    found: dict[tuple[int, str, str], dict[int, int]] = {}
    for ago, mode, channel, bucket, count in connection.execute(_TOOK, {"minutes": minutes, "span": span}):
        found.setdefault((ago, mode, channel), {})[bucket] = count
    return [Took(ago, Mode(mode), Channel(channel), buckets) for (ago, mode, channel), buckets in found.items()]


def totals(connection: Connection) -> list[Total]:
    """Everything since the beginning, by mode, channel and provider. No count of it ever falls."""
    counts: dict[tuple[str, str, str], Counts] = {}
    times: dict[tuple[str, str, str], dict[int, int]] = {}
    for mode, channel, provider, bucket, *rest in connection.execute(_TOTALS):
        key, these = (mode, channel, provider), Counts(*rest)
        counts[key] = counts.get(key, Counts()) + these
        if bucket:
            times.setdefault(key, {})[bucket] = these.sent
    return [Total(Mode(key[0]), Channel(key[1]), key[2], counts[key], times.get(key, {})) for key in counts]


def fold(connection: Connection, *, limit: int) -> int:
    """Fold minutes that are over, and those that no page shows any more; at most `limit` rows of each go."""
    return sum(connection.execute(each, {"limit": limit}).rowcount for each in (_FOLD, _FOLD_OLD))


def summed(found: Iterable[Counts]) -> Counts:
    """The sum of counts."""
    total = Counts()
    for counts in found:
        total = total + counts
    return total
