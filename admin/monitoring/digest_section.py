"""Digests in the snapshot and in the metrics: what waits on each channel, what became of it, where retention is."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from admin.monitoring.metric_families import FAMILIES
from admin.monitoring.snapshot import Data, Section, Sources, add_section, iso
from shared.domain.health_facts import Facts
from shared.ledger import digest_channels, digest_runs, notifications, retention


def sample(sources: Sources) -> Data:
    """
    Channels, all-time counts and retention. A channel's settings are None where the installation's hold.

    `next_due_at`: when something of it is told at the earliest. `backing_off_until`: the same where the endpoint did
    not take the last message, or told us to wait. `failing_since`: when it did not take the first of those.
    """
    with sources.connection() as connection:
        channels = digest_channels.every(connection)
        counts = notifications.counts(connection)
        waiting = notifications.waiting(connection)
        run = digest_runs.last(connection)
        kept = retention.newest(connection)
    return {
        "channels": [
            {
                "name": one.name,
                "tenant": one.tenant,
                "type": one.type,
                "to": one.target,
                "kinds": one.kinds,
                "min_severity": one.min_severity,
                "retry_base_delay_ms": one.retry_base_delay_ms,
                "max_attempts": one.max_delivery_attempts,
                "retention_days": one.retention_days,
                "enabled": one.enabled,
                "waiting": one.waiting,
                "retrying": one.retrying,
                "dead_lettered": one.dead_lettered,
                "dead_since": iso(one.dead_since),
                "next_due_at": iso(one.next_at),
                "last_sent_at": iso(one.last_sent_at),
                "backing_off_until": iso(one.next_at) if one.backs_off else None,
                "failing_since": iso(one.failing_since),
                "not_configured": one.not_configured,
                "not_configured_at": iso(one.not_configured_at),
            }
            for one in channels
        ],
        "counts": [
            {"channel": channel, "kind": kind, "became": became, "count": count}
            for channel, kind, became, count in counts
        ],
        "waiting": [{"channel": channel, "kind": kind, "count": count} for channel, kind, count in waiting],
        "last_run_at": iso(run.ended_at) if run else None,
        "retention": retention.as_json(kept),
    }


def families(facts: Facts) -> Iterator[Metric]:
    """What became of notifications since the beginning, what waits, which channels refuse us, the last retention."""
    known = Facts(facts.document, facts.now, any_age=True)
    sent = CounterMetricFamily(
        "tidings_notifications_sent", "Events and findings told on a digest channel.", labels=("channel", "kind")
    )
    failed = CounterMetricFamily(
        "tidings_notifications_failed",
        "Failed tries to tell one: `transient`, told later; `dead_lettered`, the last.",
        labels=("channel", "kind", "reason"),
    )
    for row in known.rows("digests", "counts"):
        if row["became"] == "sent":
            sent.add_metric((row["channel"], row["kind"]), row["count"])
        else:
            failed.add_metric((row["channel"], row["kind"], row["became"]), row["count"])
    yield from (sent, failed)
    data = facts.data("digests")
    if not data:
        return
    pending = GaugeMetricFamily(
        "tidings_notifications_pending", "Found, and neither told nor given up.", labels=("channel", "kind")
    )
    for row in facts.rows("digests", "waiting"):
        pending.add_metric((row["channel"], row["kind"]), float(row["count"]))
    yield pending
    refuses = GaugeMetricFamily(
        "tidings_digest_channel_not_configured", "1 where a channel refuses us as it is set up.", labels=("channel",)
    )
    for channel in data["channels"]:
        refuses.add_metric((channel["name"],), float(channel["enabled"] and channel["not_configured"] is not None))
    yield refuses
    if data["retention"]:
        yield GaugeMetricFamily(
            "tidings_retention_unfinished_seconds",
            "How long a day's retention has been running without coming to its end; else 0.",
            value=0.0 if data["retention"]["ended_at"] else facts.age_s(data["retention"]["started_at"]) or 0.0,
        )


add_section(Section("digests", "postgres", sample))
FAMILIES.append(families)
