"""What Redis tells of the machinery, for the snapshot: queues, workers, providers, and the server itself."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any

from admin.monitoring.judging import thresholds_of
from admin.monitoring.snapshot import Data, Section, Sources, add_section, iso
from shared.accounts import UNCONFIGURED, accounts_in_use, cap_of, missing_settings, provider_name
from shared.coordination.gate import Gate
from shared.coordination.heartbeat import Worker, list_queues, list_workers
from shared.coordination.minute_ring import MinuteRings
from shared.coordination.queue_depth import QueueDepth, Queues
from shared.coordination.slot_waits import SlotWaits
from shared.coordination.slots import Slots, reserved_slots
from shared.domain.fleet import Beat, QueueMinutes, judge_queue, judge_worker, oldest_wait_s
from shared.domain.pace import percentile
from shared.domain.states import Channel, Mode
from shared.jobs import QueueName
from shared.recovery.waits import circuit_of
from shared.settings import Settings

#: Minutes over which what goes in and out of a queue is averaged.
_RATE_MINUTES = 5


def sample_queues(sources: Sources) -> Data:
    """Every queue of this installation: what waits, what moves, and how it is. Of pauses the ledger tells."""
    settings, limits = sources.settings, thresholds_of(sources.settings)
    seen = list_queues(sources.link, namespace=settings.redis_namespace)
    names = sorted(set(seen) | {name.value for name in QueueName})
    depths = {depth.queue: depth for depth in _queues(sources).depths(names)}
    span = max(limits.arriving_faster_minutes, int(limits.queue_still_s // 60), _RATE_MINUTES)
    rings = MinuteRings(
        sources.link, points=settings.queue_metrics_max_data_points, namespace=settings.redis_namespace
    ).read(names, minutes=span + 1)
    workers = list_workers(sources.link, namespace=settings.redis_namespace)
    rows = []
    for name in names:
        full = rings[name][:-1]  # the newest minute is still filling
        consumers = sum(name in worker.identity.queues and _consumes(worker, limits.beat_late_s) for worker in workers)
        depth = depths[name]
        word, growing = judge_queue(
            QueueMinutes([each.added for each in full], [each.done + each.failed for each in full]),
            ready=depth.ready,
            in_flight=depth.unacked,
            waits_s=_wait_s(depth, sources.now),
            workers=consumers,
            limits=limits,
        )
        last_beat = seen.get(name)
        rows.append(
            {
                "queue": name,
                "ready": depth.ready,
                "in_flight": depth.unacked,
                "delayed": depth.delayed,
                "set_aside": depth.dead,
                "oldest_at": iso(depth.oldest_at),
                "in_per_minute": _mean([each.added for each in full[-_RATE_MINUTES:]]),
                "out_per_minute": _mean([each.done + each.failed for each in full[-_RATE_MINUTES:]]),
                "failed_per_minute": _mean([each.failed for each in full[-_RATE_MINUTES:]]),
                "workers": consumers,
                "no_worker_since": None if consumers else iso(last_beat),
                "health": word,
                "growing_minutes": growing,
            }
        )
    return {"queues": rows}


def sample_workers(sources: Sources) -> Data:
    """Every worker process that has beaten within 15 minutes and has not ended."""
    settings, limits = sources.settings, thresholds_of(sources.settings)
    workers = list_workers(sources.link, namespace=settings.redis_namespace)
    names = sorted({queue for worker in workers for queue in worker.identity.queues})
    waits = {
        depth.queue: wait_s
        for depth in _queues(sources).depths(names)
        if (wait_s := _wait_s(depth, sources.now)) is not None
    }
    rows = []
    for worker in workers:
        who = worker.identity
        beat = Beat(
            beat_age_s=worker.beat_age_s,
            up_s=(sources.now - who.started_at).total_seconds(),
            draining=worker.state == "draining",
            threads=who.threads,
            busy_ages=[each.progress_age_s for each in worker.consumers if each.busy],
            idle_ages=[each.progress_age_s for each in worker.consumers if not each.busy],
        )
        word, why = judge_worker(beat, waits_s=oldest_wait_s(who.queues, waits, _paused(worker)), limits=limits)
        quiet_s = min((*beat.busy_ages, *beat.idle_ages), default=beat.up_s)
        rows.append(
            {
                "id": who.id,
                "name": who.name,
                "kind": who.kind,
                "version": who.version,
                "queues": list(who.queues),
                "threads": who.threads,
                "busy": worker.busy,
                "started_at": iso(who.started_at),
                "beat_at": iso(sources.now - timedelta(seconds=worker.beat_age_s)),
                "state": worker.state,
                "seconds_left": worker.seconds_left,
                "drain_s": worker.drain_s,
                "word": word,
                "why": why,
                "still_since": iso(sources.now - timedelta(seconds=quiet_s)),
            }
        )
    return {"workers": rows, "web_version": version("tidings")}


def sample_providers(sources: Sources) -> Data:
    """Every provider that these settings use: circuit, gate, slots. Holds and what it last took are the ledger's."""
    settings = sources.settings
    serves = _serves(settings)
    rows = []
    for name, credential in accounts_in_use(settings):
        where: dict[str, Any] = {"provider": name, "credential": credential, "namespace": settings.redis_namespace}
        seen = circuit_of(sources.link, settings, name, credential).snapshot()
        gate_s = Gate(sources.link, **where).closed_for_s()
        cap = cap_of(settings, name)
        reserved = reserved_slots(cap, settings.single_lane_reserved_percent)
        in_flight = Slots(sources.link, cap=cap, reserved=reserved, **where).in_flight()
        waits = SlotWaits(sources.link, **where).read() if cap else {}
        missing = list(missing_settings(name, settings))
        word = "isolated" if seen.isolation else seen.state
        if word == "closed":
            word = "not configured" if missing or credential == UNCONFIGURED else "gate" if gate_s else word
        since = seen.isolation.since if seen.isolation else seen.opened_at
        rows.append(
            {
                "provider": name,
                "credential": credential,
                "serves": serves[name],
                "word": word,
                "since": iso(since),
                "opened_at": iso(seen.opened_at),
                "next_probe_at": iso(_after(sources.now, seen.next_probe_in_s)),
                "failures": seen.failures_in_window,
                "failures_to_open": settings.circuit_failures,
                "window_s": settings.circuit_window_ms / 1000,
                "reopened": seen.reopened,
                "in_flight": in_flight.all if cap else None,
                "in_flight_bulk": in_flight.bulk if cap else None,
                "cap": cap or None,
                "slot_wait_p95_s": percentile(waits, 0.95),
                "reserved": reserved,
                "gate_until": iso(_after(sources.now, gate_s or None)),
                "isolation": None
                if seen.isolation is None
                else {
                    "reason": seen.isolation.reason,
                    "code": seen.isolation.code,
                    "since": iso(seen.isolation.since),
                    "recheck_at": iso(seen.isolation.recheck_at),
                },
                "missing": missing,
            }
        )
    return {"providers": rows}


def sample_redis(sources: Sources) -> Data:
    """The server: memory, eviction, clients, how fast it answers, and its clock against ours."""
    health = sources.link.health()
    before = time.time()
    (clock,) = sources.link.pipeline([("TIME",)])
    skew_s = int(clock[0]) + int(clock[1]) / 1e6 - (before + time.time()) / 2
    return {
        "version": health.version,
        "ping_ms": round(health.ping_s * 1000, 2),
        "used_memory_bytes": health.used_memory_bytes,
        "max_memory_bytes": health.max_memory_bytes,
        "eviction_policy": health.eviction_policy,
        "evicted_keys": health.evicted_keys,
        "clients": health.connected_clients,
        "rejected_connections": health.rejected_connections,
        "skew_s": round(skew_s, 3),
    }


def _serves(settings: Settings) -> dict[str, list[dict[str, str]]]:
    serves: dict[str, list[dict[str, str]]] = {}
    for channel in Channel:
        for mode in Mode:
            entry = {"channel": channel.value, "mode": mode.value}
            serves.setdefault(provider_name(settings, channel, mode), []).append(entry)
    return serves


def _queues(sources: Sources) -> Queues:
    return Queues(sources.link, namespace=f"{sources.settings.redis_namespace}:broker")


def _consumes(worker: Worker, late_s: float) -> bool:
    return worker.state == "running" and worker.beat_age_s <= late_s


def _paused(worker: Worker) -> Mapping[str, Any]:
    """Queues that a worker itself says it leaves alone."""
    return dict.fromkeys(worker.paused)


def _wait_s(depth: QueueDepth, now: datetime) -> float | None:
    return (now - depth.oldest_at).total_seconds() if depth.ready and depth.oldest_at else None


def _mean(counts: list[int]) -> float:
    return round(sum(counts) / len(counts), 1) if counts else 0.0


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


add_section(Section("queues", "redis", sample_queues))
add_section(Section("workers", "redis", sample_workers))
add_section(Section("providers", "redis", sample_providers))
add_section(Section("redis", "redis", sample_redis))
