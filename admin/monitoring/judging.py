"""What a snapshot means: the warnings, worst first, and the one sentence that is read first."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from shared.domain import health
from shared.domain.health_facts import Thresholds
from shared.settings import Settings

_log = logging.getLogger(__name__)


def thresholds_of(settings: Settings) -> Thresholds:
    """When something is worth telling, by these settings."""
    return Thresholds(
        nothing_moving_age_s=settings.monitoring_nothing_moving_age_ms / 1000,
        nothing_sent_s=settings.monitoring_nothing_sent_ms / 1000,
        failure_percent=settings.monitoring_failure_percent,
        failure_critical_percent=settings.monitoring_failure_critical_percent,
        failure_attempts_min=settings.monitoring_failure_attempts_min,
        circuit_open_s=settings.monitoring_circuit_open_ms / 1000,
        provider_held_s=settings.monitoring_provider_held_ms / 1000,
        reconcile_interval_s=settings.delivery_reconcile_interval_ms / 1000,
        reconciler_late_intervals=settings.monitoring_reconciler_late_intervals,
        clock_late_s=settings.monitoring_clock_late_ms / 1000,
        dead_letters_growing=settings.monitoring_dead_letters_growing,
        redis_memory_percent=settings.monitoring_redis_memory_percent,
        snapshot_stale_s=settings.monitoring_snapshot_stale_ms / 1000,
        beat_late_s=settings.monitoring_worker_late_ms / 1000,
        worker_hung_s=settings.delivery_reconcile_stale_ms / 1000,
        worker_idle_s=settings.monitoring_worker_idle_ms / 1000,
        version_skew_s=settings.monitoring_version_skew_ms / 1000,
        clock_skew_s=settings.monitoring_clock_skew_ms / 1000,
        queue_still_s=settings.monitoring_queue_still_ms / 1000,
        arriving_faster_minutes=settings.monitoring_arriving_faster_minutes,
    )


def judge(
    document: Mapping[str, Any], settings: Settings, now: datetime, *, before: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """
    Give the warnings `{"rule", "severity", "text", "since", "panel", "mark"}` and the verdict `{"text", "severity"}`.

    `before` are the warnings of the last document: what was noticed then began then, and a rule's fault is written to
    the log once, not every two seconds.
    """
    known = {warning["text"] for warning in before}

    def note(unjudged: health.Warning) -> None:
        if unjudged.text not in known:
            _log.exception("rule_failed", extra={"said": unjudged.text})

    warnings = health.judge(document, thresholds_of(settings), now, before=before, on_fault=note)
    return [warning.as_json() for warning in warnings], health.verdict(warnings)
