"""What is wrong with the flow of messages: one finder per rule of `health`. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from shared.domain.health_facts import (
    FAILURE_WINDOW_S,
    Facts,
    Thresholds,
    channel_word,
    is_are,
    messages_of,
    messages_word,
)
from shared.domain.words import duration

Severity = Literal["critical", "warning"]
#: Seconds without a message taken below which that would be no news.
_NEWS_S = 60.0
#: Seconds that a queue on which nothing waits may be without a worker: a deploy ends one and starts another.
_CHANGE_OF_GUARD_S = 30.0


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing that a rule found. `since` is an ISO moment, None where nobody knows; severity None is the rule's.

    `keeps`: something waits for it now; what keeps nothing from going is a warning and never the verdict. `mark` is
    what it is about, where nothing says when that began, or only whether it did within two hours: it counts from when
    it was first noticed.
    """

    text: str
    since: str | None = None
    severity: Severity | None = None
    keeps: bool = True
    mark: str | None = None


def store_away(facts: Facts, store: str, text: str) -> Iterator[Finding]:
    """A store that did not answer."""
    entry = facts.store(store)
    if entry.get("status", "ok") != "ok":
        yield Finding(text, entry.get("since"))


def unaccounted(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """Deliveries that the books cannot place, found by the reconciler's pass."""
    found = facts.data("recovery").get("unaccounted") or {}
    if found.get("deliveries"):
        count = found["deliveries"]
        sends = ", ".join(found["sends"][:3])
        yield Finding(
            f"{count:,} deliver{'y is' if count == 1 else 'ies are'} unaccounted for in the books of send {sends}.",
            found.get("at"),
        )


def no_workers(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """
    A queue that no live worker consumes; those on which nothing is due are told of together.

    Nothing is said while Redis has just come back: no worker could beat without it, and each needs a moment.
    """
    back_s = facts.age_s(facts.store("redis").get("back_at"))
    if not facts.data("workers") or not facts.data("queues") or (back_s is not None and back_s <= limits.beat_late_s):
        return
    consumed = {
        queue
        for worker in facts.rows("workers", "workers")
        if (facts.age_s(worker["beat_at"]) or 0.0) <= limits.beat_late_s and worker["state"] == "running"
        for queue in worker["queues"]
    }
    idle = []
    for queue in facts.rows("queues", "queues"):
        if queue["queue"] in consumed or queue["queue"] in facts.paused_queues():
            continue
        works = [work for work in facts.due() if work["queue"] == queue["queue"]]
        if works:
            yield _due_without_worker(facts, queue, works)
        elif queue["ready"] or (facts.age_s(queue.get("no_worker_since")) or 0.0) > _CHANGE_OF_GUARD_S:
            idle.append(queue)
    if idle:
        names = " and ".join(f"`{queue['queue']}`" for queue in idle)
        ready = sum(queue["ready"] for queue in idle)
        waits = f"{ready:,} message{' waits' if ready == 1 else 's wait'}" if ready else "nothing waits there now"
        since = min((queue["no_worker_since"] for queue in idle if queue.get("no_worker_since")), default=None)
        text = f"No running worker on queue{'s' if len(idle) > 1 else ''} {names}; {waits}."
        yield Finding(text, since, "critical" if ready else "warning", keeps=ready > 0)


def _due_without_worker(facts: Facts, queue: Mapping[str, Any], works: Sequence[Mapping[str, Any]]) -> Finding:
    name, oldest = queue["queue"], [work["oldest_due_at"] for work in works if work["oldest_due_at"]]
    since = queue.get("no_worker_since") or min(oldest, default=None)
    due = sum(work["due"] for work in works)
    quiet_s = facts.last_accepted_s(works[0]["channel"])
    if quiet_s is not None and quiet_s < _NEWS_S:
        return Finding(f"No running worker on queue `{name}`: {due:,} {is_are(due)} due.", since)
    quiet = "" if quiet_s is None else f" for {duration(quiet_s)}"
    text = f"Nothing has been sent{quiet} although {due:,} {is_are(due)} due: no running worker on queue `{name}`."
    return Finding(text, since)


def nothing_moving(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """A channel with old due work that may go, of which nothing goes. Who keeps work back is told by Redis alone."""
    for channel in ("email", "sms") if facts.data("providers") else ():
        works = [work for work in facts.due() if work["channel"] == channel and work["mode"] == "live"]
        oldest = min((work["oldest_due_at"] for work in works if work["oldest_due_at"]), default=None)
        age_s = facts.age_s(oldest)
        if age_s is None or age_s < limits.nothing_moving_age_s:
            continue
        quiet_s = facts.last_accepted_s(channel)
        if quiet_s is not None and quiet_s < limits.nothing_sent_s:
            continue
        count = sum(work["due"] for work in works)
        for_s = duration(min(age_s, quiet_s) if quiet_s is not None else age_s)
        words = messages_word({channel}, count)
        yield Finding(f"Nothing has been sent for {for_s} although {words} {is_are(count)} due.", oldest)


def circuit_open(facts: Facts, limits: Thresholds, *, long: bool) -> Iterator[Finding]:
    """A provider whose circuit failures opened, for longer than the threshold or for less."""
    for row in facts.providers():
        open_s = facts.age_s(row.get("opened_at")) if row["word"] in ("open", "half-open") else None
        if open_s is None or (open_s >= limits.circuit_open_s) is not long:
            continue
        channels = {served["channel"] for served in row["serves"]}
        count = facts.waiting_for(row)
        failed = sum(entry["failed_3m"] for entry in facts.rows("traffic", "channels") if entry["channel"] in channels)
        waiting = f"{messages_word(channels, count)} {is_are(count)} waiting"
        rest = "" if failed or not facts.data("traffic") else ", none are failing"
        yield Finding(f"{_provider(row)} circuit open for {duration(open_s)}: {waiting}{rest}.", row["opened_at"])


def provider_not_configured(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """A provider that refused our account or set-up, or that lacks settings while messages wait for it."""
    for row in facts.providers():
        count = facts.waiting_for(row)
        channels = {served["channel"] for served in row["serves"]}
        waiting = f"{messages_word(channels, count)} {is_are(count)} waiting"
        if row["word"] == "isolated":
            why = (row.get("isolation") or {}).get("reason") or "our configuration was refused"
            yield Finding(f"{_provider(row)} is not set up right: {_clipped(why)}. {waiting}.", row.get("since"))
        elif row["missing"] and count:
            text = f"{_provider(row)} lacks settings ({', '.join(row['missing'])}): {waiting}."
            yield Finding(text, facts.oldest_waiting_for(row))


def provider_held(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """A provider that an operator holds."""
    for row in facts.providers():
        hold = row.get("hold")
        if hold:
            channels = {served["channel"] for served in row["serves"]}
            count = facts.waiting_for(row)
            waiting = f"{messages_word(channels, count)} {is_are(count)} waiting"
            text = f"{_provider(row)} held by {hold['by']} ({_clipped(hold['reason'])}): {waiting}."
            yield Finding(text, hold["since"], keeps=count > 0)


def queue_paused(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """A queue that an operator paused."""
    for name, pause in facts.paused_queues().items():
        count = sum(work["due"] for work in facts.rows("work", "due") if work["queue"] == name)
        waiting = f"{count:,} {is_are(count)} waiting"
        text = f"Queue {name} paused by {pause['by']} ({_clipped(pause['reason'])}): {waiting}."
        yield Finding(text, pause["since"], keeps=count > 0)


def too_many_failed(row: Mapping[str, Any], limits: Thresholds, *, count: int) -> bool:
    """Whether `count` failures are too large a share of what a channel's row says was tried."""
    attempts = row["sent_15m"] + row["failed_15m"]
    return bool(attempts >= limits.failure_attempts_min and count * 100 > limits.failure_percent * attempts)


def failure_ratio_high(facts: Facts, limits: Thresholds, *, critical: bool) -> Iterator[Finding]:
    """A channel of which too large a share failed in the last quarter of an hour and is open, or a critical one."""
    for row in facts.rows("traffic", "channels"):
        attempts, failed = row["sent_15m"] + row["failed_15m"], row.get("open_15m", row["failed_15m"])
        if not too_many_failed(row, limits, count=failed):
            continue
        if (failed * 100 > limits.failure_critical_percent * attempts) is critical:
            yield Finding(
                f"{failed * 100 / attempts:.1f} % of {messages_of(row['channel'])} failed in the last"
                f" {FAILURE_WINDOW_S // 60} min: {failed:,} of {attempts:,}{_dealt_with(row['failed_15m'] - failed)}.",
                row.get("failing_since"),
                mark=row["channel"],
            )


def _dealt_with(count: int) -> str:
    return f", without {count:,} requeued or discarded since" if count else ""


def dead_letters_growing(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Dead letters of the last quarter of an hour, all channels together."""
    rows = [row for row in facts.rows("traffic", "channels") if row["dead_lettered_15m"]]
    count = sum(row.get("dead_open_15m", row["dead_lettered_15m"]) for row in rows)
    if count >= limits.dead_letters_growing:
        since = min((row["dead_lettering_since"] for row in rows if row.get("dead_lettering_since")), default=None)
        rest = _dealt_with(sum(row["dead_lettered_15m"] for row in rows) - count)
        text = f"{count:,} deliveries were dead-lettered in the last {FAILURE_WINDOW_S // 60} min{rest}."
        yield Finding(text, since, mark="all channels")


def not_moving(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """A queue whose messages wait while its workers finish none."""
    for queue in facts.rows("queues", "queues"):
        if queue["health"] == "not moving" and queue["queue"] not in facts.paused_queues():
            age_s = facts.age_s(queue["oldest_at"]) or 0.0
            if age_s >= limits.queue_still_s:
                waits = f"{queue['ready']:,} message{' waits' if queue['ready'] == 1 else 's wait'}"
                yield Finding(f"Queue `{queue['queue']}` is not moving: {waits}, the oldest for {duration(age_s)}.",
                              queue["oldest_at"])  # fmt: skip


def arriving_faster(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """A queue that has been given more than it finished, minute after minute."""
    for queue in facts.rows("queues", "queues"):
        if queue["health"] == "arriving faster":
            minutes = queue["growing_minutes"]
            yield Finding(
                f"Messages have arrived on queue `{queue['queue']}` faster than they are worked on for {minutes} min:"
                f" {queue['ready']:,} wait.",
                (facts.now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)).isoformat(),
            )


def _provider(row: Mapping[str, Any]) -> str:
    channels = sorted({served["channel"] for served in row["serves"]})
    name = f"provider {row['provider']}"
    return f"{channel_word(channels[0])} {name}" if len(channels) == 1 else name.capitalize()


def _clipped(text: str) -> str:
    """People's and providers' own words, short enough for a line."""
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004
