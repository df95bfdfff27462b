"""What is wrong with digests and with retention. Pure."""

from collections.abc import Iterator

from shared.domain.health_facts import Facts, Thresholds, is_are
from shared.domain.health_findings import Finding
from shared.domain.words import duration

#: Seconds; a day's retention that takes longer does not keep up, or does not get through.
_RETENTION_LATE_S = 24 * 3600.0
#: Seconds; an endpoint that is away for a restart or a busy spell takes messages again sooner.
_NOT_TAKEN_S = 3600.0
#: Channels named in one sentence.
_NAMED = 3


def channel_refuses(facts: Facts, _limits: Thresholds) -> Iterator[Finding]:
    """Digest channels whose endpoint refuses us as they are set up: what is to be told waits."""
    for channel in facts.rows("digests", "channels"):
        if channel["enabled"] and channel["not_configured"] is not None:
            text = f"Digest channel {channel['name']} is not set up right: {channel['not_configured']}"
            yield Finding(f"{text.rstrip('.')}; {channel['waiting']:,} wait.", channel["not_configured_at"])


def nothing_taken(facts: Facts, _limits: Thresholds) -> Iterator[Finding]:
    """Digest channels whose endpoint has long taken no message; one that tells us to wait makes no dead letters."""
    for channel in facts.rows("digests", "channels"):
        since = channel.get("failing_since")
        is_ours = channel["enabled"] and channel["not_configured"] is None and channel["waiting"]
        if is_ours and since and (age_s := facts.age_s(since) or 0.0) > _NOT_TAKEN_S:
            text = f"Digest channel {channel['name']} has taken no message for {duration(age_s)}"
            yield Finding(f"{text}; {channel['waiting']:,} wait.", since)


def dead_letters_left(facts: Facts, _limits: Thresholds) -> Iterator[Finding]:
    """Notifications that were given up, on channels that are enabled: nobody hears of them unless somebody acts."""
    rows = [row for row in facts.rows("digests", "channels") if row["enabled"] and row["dead_lettered"]]
    if not rows:
        return
    count = sum(row["dead_lettered"] for row in rows)
    names = ", ".join(row["name"] for row in rows[:_NAMED]) + (
        f" and {len(rows) - _NAMED} more" if rows[_NAMED:] else ""
    )
    yield Finding(
        f"{count:,} notification{'' if count == 1 else 's'} of digests {is_are(count)} dead-lettered ({names}): nobody"
        " is told unless somebody requeues.",
        min((row["dead_since"] for row in rows if row.get("dead_since")), default=None),
    )


def retention_late(facts: Facts, _limits: Thresholds) -> Iterator[Finding]:
    """A day's retention that does not come to its end."""
    run = facts.data("digests").get("retention")
    if not run or run["ended_at"] is not None:
        return
    age_s = facts.age_s(run["started_at"]) or 0.0
    if age_s > _RETENTION_LATE_S:
        why = f" ({run['error']})" if run["error"] else ""
        yield Finding(
            f"Retention has not come to its end for {duration(age_s)}{why}; the ledger grows.", run["started_at"]
        )
