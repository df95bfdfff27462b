"""What the ledger tells of the machinery, for the snapshot: due work, pauses, holds, passes, and the server itself."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from admin.monitoring import flow
from admin.monitoring.judging import thresholds_of
from admin.monitoring.snapshot import Data, Section, Sources, add_section, iso
from admin.monitoring.snapshot_shape import SHAPE
from shared.accounts import credential_of, provider_name
from shared.coordination import keys
from shared.coordination.redis import RedisUnavailable
from shared.domain.health_facts import FAILURE_WINDOW_S
from shared.domain.health_findings import too_many_failed
from shared.domain.pace import run_began
from shared.domain.states import Channel, Mode
from shared.jobs import queue_for
from shared.ledger import audit, failure_counts, minutes, pauses, providers, system
from shared.ledger.failure_counts import Fresh
from shared.ledger.minutes import Minute
from shared.ledger.overview import LaneWork
from shared.recovery.passes import KINDS
from shared.settings import Settings

#: Minutes over which failures are counted, and those that are "now".
_FAILURE_MINUTES, _NOW_MINUTES = FAILURE_WINDOW_S // 60, 3
#: Milliseconds for which totals are not summed again: less than any scrape interval.
_TOTALS_MS = 5_000
#: Recoveries that the System page lists.
_RECOVERIES = 20


def sample_work(sources: Sources) -> Data:
    """What is due, which queues and providers people stopped, and what each provider last took and refused."""
    lanes = sources.once(flow.look).work.lanes
    with sources.connection() as connection:
        releases = system.releases(connection)
        paused = pauses.paused(connection)
        states = {(state.provider, state.credential): state for state in providers.states(connection)}
        holds = {(hold.provider, hold.credential): hold for hold in providers.holds(connection)}
        errors = system.newest_errors(connection)
    return {
        "due": [
            {
                "queue": queue_for(lane.channel, lane.lane).value,
                "channel": lane.channel.value,
                "lane": lane.lane.value,
                "mode": lane.mode.value,
                "due": lane.due,
                "oldest_due_at": iso(_since(lane, releases, sources.settings)),
            }
            for lane in lanes
            if lane.due
        ],
        "pauses": [
            {"queue": pause.queue, "by": pause.operator, "reason": pause.reason, "since": iso(pause.since)}
            for pause in paused.values()
        ],
        "accounts": [
            {
                "provider": name,
                "credential": credential,
                "last_accepted_at": iso(state.last_accepted_at) if state else None,
                "configuration_error": state.configuration_error if state else None,
                "hold": {"by": hold.operator, "reason": hold.reason, "since": iso(hold.since)} if hold else None,
            }
            for name, credential in sorted(states.keys() | holds.keys())
            for state, hold in [(states.get((name, credential)), holds.get((name, credential)))]
        ],
        "errors": {
            name: {"at": iso(error.at), "text": error.detail or error.code or error.outcome}
            for name, error in errors.items()
        },
    }


def sample_traffic(sources: Sources) -> Data:
    """What happened to live deliveries in the last minutes, by channel; and everything since the beginning."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    past = [each for each in sources.once(flow.past_minutes) if each.mode is Mode.LIVE]
    with sources.connection() as connection:
        rates = system.provider_rates(connection)
    channels = []
    for channel in Channel:
        all_live = [each for each in past if each.channel is channel]
        live = [each for each in all_live if each.ago <= _FAILURE_MINUTES]
        last = [each.counts for each in live if each.ago <= _NOW_MINUTES]
        channels.append(
            {
                "channel": channel.value,
                "sent_3m": sum(counts.sent for counts in last),
                "failed_3m": sum(counts.failed + counts.dead_lettered for counts in last),
                "sent_15m": sum(each.counts.sent for each in live),
                "failed_15m": sum(each.counts.failed + each.counts.dead_lettered for each in live),
                "dead_lettered_15m": sum(each.counts.dead_lettered for each in live),
                "failing_since": _run_since(now, [each.ago for each in all_live if _is_bad(each, sources)]),
                "dead_lettering_since": _run_since(now, [each.ago for each in all_live if each.counts.dead_lettered]),
            }
        )
    _note_open(sources, channels)
    return {
        "channels": channels,
        "per_minute": rates,
        "totals": _totals(sources),
    }


def _note_open(sources: Sources, channels: list[Data]) -> None:
    """How many of what failed are failures still: asked only while a rule would warn of how many failed."""
    limits = thresholds_of(sources.settings)
    failing = any(too_many_failed(row, limits, count=row["failed_15m"]) for row in channels)
    if not failing and sum(row["dead_lettered_15m"] for row in channels) < limits.dead_letters_growing:
        return
    with sources.connection() as connection:
        found = failure_counts.fresh(connection, minutes=_FAILURE_MINUTES)
    if found is None:
        return
    for row in channels:
        still = found.get(Channel(row["channel"]), Fresh())
        row["open_15m"] = min(still.count, row["failed_15m"])
        row["dead_open_15m"] = min(still.dead_lettered, row["dead_lettered_15m"])


def _is_bad(minute: Minute, sources: Sources) -> bool:
    counts = minute.counts
    failed = counts.failed + counts.dead_lettered
    return failed * 100 > sources.settings.monitoring_failure_percent * (counts.sent + failed)


def _run_since(now: datetime, ago: list[int]) -> str | None:
    """The first of these minutes, where none of those after it came a whole window later."""
    began = run_began(ago, gap=_FAILURE_MINUTES)
    return None if began is None else iso(now - timedelta(minutes=began))


def _totals(sources: Sources) -> list[Data]:
    """Everything since the beginning; summed anew every _TOTALS_MS for the whole fleet, since it reads every minute."""
    key = keys.SNAPSHOT_TOTALS.name(sources.settings.redis_namespace, shape=SHAPE)
    with suppress(RedisUnavailable):
        (kept,) = sources.link.pipeline([("GET", key)])
        if kept:
            found: list[Data] = json.loads(kept)
            return found
    with sources.connection() as connection:
        totals = minutes.totals(connection)
    found = [
        {
            "channel": total.channel.value,
            "provider": total.provider,
            "counts": {name: getattr(total.counts, name) for name in minutes.COUNTS},
            "took": {str(bucket): count for bucket, count in sorted(total.took.items())},
        }
        for total in totals
        if total.mode is Mode.LIVE
    ]
    with suppress(RedisUnavailable):
        sources.link.pipeline([("SET", key, json.dumps(found), "PX", _TOTALS_MS)])
    return found


def sample_recovery(sources: Sources) -> Data:
    """The newest pass and tick, what the last hour's did by kind, and the newest that did anything."""
    with sources.connection() as connection:
        state = system.recovery_state(connection)
        sums = {each.kind: each for each in system.recovered(connection)}
        newest = system.recoveries(connection, limit=_RECOVERIES)
    return {
        "last_pass_at": iso(state.started_at),
        "last_pass_s": _seconds(state.started_at, state.ended_at),
        "last_pass_by": state.worker,
        "last_pass_error": state.error,
        "last_tick_at": iso(state.last_tick_at),
        "first_send_at": iso(state.first_send_at),
        "unaccounted": {**state.unaccounted, "at": iso(state.started_at)} if state.unaccounted else None,
        "kinds": [
            {
                "kind": kind,
                "found": each.found if each else 0,
                "retried": each.retried if each else 0,
                "requeued": each.requeued if each else 0,
                "given_up": each.given_up if each else 0,
            }
            for kind in KINDS
            for each in [sums.get(kind)]
        ],
        "recoveries": [
            {
                "at": iso(each.started_at),
                "by": each.worker,
                "by_tick": each.by_tick,
                "seconds": _seconds(each.started_at, each.ended_at),
                "counts": {kind: dict(counts) for kind, counts in each.counts.items()},
                "error": each.error,
            }
            for each in newest
        ],
    }


def sample_postgres(sources: Sources) -> Data:
    """The server: version, connections, schema, how fast it answers, and its clock against ours."""
    with sources.connection() as connection:
        connection.execute("SELECT 1")  # the snapshot's transaction begins here, not within what is measured
        began, before = time.monotonic(), time.time()
        health = system.ledger_health(connection)
        took_s, after = time.monotonic() - began, time.time()
    return {
        "version": health.version,
        "schema": health.schema,
        "latency_ms": round(took_s * 1000, 2),
        "connections": health.connections,
        "max_connections": health.max_connections,
        "skew_s": round(health.now.timestamp() - (before + after) / 2, 3),
    }


def _since(lane: LaneWork, releases: Mapping[str, datetime], settings: Settings) -> datetime | None:
    """Since when a lane's oldest work could go: not before somebody let go of its queue and its provider."""
    if lane.oldest_due_at is None:
        return None
    name = provider_name(settings, lane.channel, lane.mode)
    keepers = (
        audit.queue_target(queue_for(lane.channel, lane.lane).value),
        audit.provider_target(name, credential_of(settings, name)),
    )
    return max([lane.oldest_due_at, *(releases[keeper] for keeper in keepers if keeper in releases)])


def _seconds(started: datetime | None, ended: datetime | None) -> float | None:
    return None if started is None or ended is None else round((ended - started).total_seconds(), 2)


add_section(Section("postgres", "postgres", sample_postgres))
add_section(Section("work", "postgres", sample_work))
add_section(Section("traffic", "postgres", sample_traffic))
add_section(Section("recovery", "postgres", sample_recovery))
