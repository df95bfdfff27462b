"""
The rules of what can be wrong. One table makes the warnings, the verdict, the JSON and the Prometheus alerts. Pure.

A rule is one row: a finder over the snapshot for people, and the same thing in PromQL for the alert, with the same
thresholds. The order is that of causes: what stands above explains what stands below, and is said first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shared.domain import health_digests as digests
from shared.domain import health_findings as flow
from shared.domain import health_states as states
from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_findings import Finding, Severity

#: Where a warning leads: the page of a panel is the page helper's to know.
Panel = Literal[
    "foundations",
    "providers",
    "queues",
    "workers",
    "recovery",
    "redis",
    "channels",
    "failures",
    "sends",
    "digests",
    "dead_letters",
]


@dataclass(frozen=True, slots=True)
class Alert:
    """The rule in PromQL; `$name` stands for a threshold. `holds` is how long it must be so, in Prometheus's words."""

    expression: str
    holds: str


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One thing that can be wrong.

    `verdict`: it says something about sending and may be the verdict; other warnings leave "Sending normally".
    `means` is for whoever is woken by the alert. Without `alert` it is a warning on the pages alone.
    """

    name: str
    severity: Severity
    panel: Panel
    find: Callable[[Facts, Thresholds], Iterator[Finding]]
    means: str
    alert: Alert | None
    verdict: bool = True


#: The rule of what is said instead of a rule that raised.
NOT_JUDGED = "NotJudged"


def _store(name: str, text: str) -> Callable[[Facts, Thresholds], Iterator[Finding]]:
    return lambda facts, _: flow.store_away(facts, name, text)


def _ended(outcomes: str, *, by: str = "by (channel) ") -> str:
    """So many of the last quarter of an hour. Every web process tells the same: scraped together they count once."""
    each = f'increase(tidings_deliveries_total{{outcome=~"{outcomes}"}}[15m])'
    return f"sum {by}(max by (channel, provider, outcome) ({each}))"


_ATTEMPTS = _ended("sent|failed|dead_lettered")
_FAILED = _ended("failed|dead_lettered")

RULES: tuple[Rule, ...] = (
    Rule(
        "PostgresUnreachable", "critical", "foundations",
        _store("postgres", "Postgres does not answer: nothing is accepted or sent; the figures are the last seen."),
        "The ledger is away. Submissions are answered 503, workers wait; nothing is lost.",
        Alert('tidings_up{store="postgres"} == 0', "1m"),
    ),
    Rule(
        "Unaccounted", "critical", "foundations", flow.unaccounted,
        "The books of a send do not balance: a fault of ours, or a hand in the database.",
        Alert("tidings_unaccounted_deliveries > 0", "0m"),
    ),
    Rule(
        "RedisUnreachable", "critical", "foundations",
        _store("redis", "Redis does not answer: what runs goes on without shared caps and circuits, what is accepted"
               " now waits."),
        "Transport and shared state are away. Accepted sends wait in the ledger; nothing is lost.",
        Alert('tidings_up{store="redis"} == 0', "1m"),
    ),
    Rule(
        "NoWorkers", "critical", "workers", flow.no_workers,
        "Nobody consumes a queue: what is due on it waits.",
        Alert("tidings_queue_workers == 0 unless on (queue) tidings_queue_paused == 1", "2m"),
    ),
    Rule(
        "NothingMoving", "critical", "channels", flow.nothing_moving,
        "Work is due and may go, and nothing goes.",
        Alert(
            "max by (channel) (tidings_oldest_due_age_seconds) > $nothing_moving_age_s"
            " and on (channel) (time() - tidings_last_sent_timestamp_seconds > $nothing_sent_s)",
            "1m",
        ),
    ),
    Rule(
        "CircuitOpenLong", "critical", "providers", partial(flow.circuit_open, long=True),
        "A provider has been failing or timing out for long. Deliveries wait and none fails for it.",
        Alert("tidings_provider_circuit_open_seconds > $circuit_open_s", "0m"),
    ),
    Rule(
        "CircuitOpen", "warning", "providers", partial(flow.circuit_open, long=False),
        "A provider fails or times out; one probe in 30 s finds out when it is back.",
        None,
    ),
    Rule(
        "ProviderNotConfigured", "critical", "providers", flow.provider_not_configured,
        "A provider refused our account or set-up, or lacks settings, and messages wait for it.",
        Alert("tidings_provider_not_configured == 1", "5m"),
    ),
    Rule(
        "ProviderHeld", "warning", "providers", flow.provider_held,
        "An operator's hold is still on; it ends only by an operator.",
        Alert("time() - (tidings_provider_held_since_timestamp_seconds > 0) > $provider_held_s", "0m"),
    ),
    Rule(
        "QueuePaused", "warning", "queues", flow.queue_paused,
        "An operator's pause is still on; it ends only by an operator.",
        Alert("tidings_queue_paused == 1", "1h"),
    ),
    Rule(
        "FailureRatioCritical", "critical", "failures", partial(flow.failure_ratio_high, critical=True),
        "So large a share of deliveries fails for good that something is broken: look at the groups of failures.",
        Alert(
            f"{_FAILED} > $failure_critical_percent / 100 * {_ATTEMPTS} and {_ATTEMPTS} >= $failure_attempts_min",
            "0m",
        ),
    ),
    Rule(
        "FailureRatioHigh", "warning", "failures", partial(flow.failure_ratio_high, critical=False),
        "An unusual share of deliveries fails for good: look at the groups of failures.",
        Alert(
            f"{_FAILED} > $failure_percent / 100 * {_ATTEMPTS} and {_ATTEMPTS} >= $failure_attempts_min",
            "0m",
        ),
    ),
    Rule(
        "NotMoving", "warning", "queues", flow.not_moving,
        "Messages wait on a queue and its workers finish none.",
        Alert('tidings_warnings{rule="NotMoving"} > 0', "1m"),
    ),
    Rule(
        "ReconcilerLate", "warning", "recovery", states.reconciler_late,
        "What gets lost is not found while no pass runs.",
        Alert("tidings_reconciler_last_pass_age_seconds > $reconciler_late_intervals * $reconcile_interval_s", "0m"),
        verdict=False,
    ),
    Rule(
        "ClockLate", "warning", "recovery", states.clock_late,
        "Nothing that waits for a time begins: scheduled sends, retries, passes.",
        Alert("tidings_clock_tick_age_seconds > $clock_late_s", "1m"),
    ),
    Rule(
        "WorkerZombie", "warning", "workers", states.worker_zombie,
        "A process beats and does not work: restart it.",
        Alert('tidings_warnings{rule="WorkerZombie"} > 0', "2m"),
        verdict=False,
    ),
    Rule(
        "ArrivingFaster", "warning", "queues", flow.arriving_faster,
        "More arrives than is worked on: add workers, or wait for the peak to end.",
        Alert('tidings_warnings{rule="ArrivingFaster"} > 0', "0m"),
        verdict=False,
    ),
    Rule(
        "DeadLettersGrowing", "warning", "failures", flow.dead_letters_growing,
        "Deliveries use up their attempts: a provider fails in a way that its circuit does not see.",
        Alert(
            f"{_ended('dead_lettered', by='')} >= $dead_letters_growing", "0m"
        ),
        verdict=False,
    ),
    Rule(
        "RedisMemoryHigh", "warning", "redis", states.redis_memory_high,
        "Near its limit Redis refuses messages.",
        Alert("tidings_redis_memory_ratio > $redis_memory_percent / 100", "5m"),
        verdict=False,
    ),
    Rule(
        "RedisNotNoEviction", "warning", "redis", states.redis_not_noeviction,
        "Redis drops queue keys without an error when it is full.",
        Alert("tidings_redis_noeviction == 0", "5m"),
        verdict=False,
    ),
    Rule(
        "SnapshotStale", "warning", "foundations", states.snapshot_stale,
        "The pages and these metrics show old figures.",
        Alert(
            "time() - tidings_snapshot_timestamp_seconds > $snapshot_stale_s"
            " or (tidings_section_up == 0 unless on () (min(tidings_up) == 0))"
            " or absent(tidings_snapshot_timestamp_seconds)",
            "1m",
        ),
        verdict=False,
    ),
    Rule(
        NOT_JUDGED, "warning", "foundations", lambda _facts, _limits: iter(()),
        "A rule of these cannot be judged, so that nobody is told of what it looks for: a fault of ours.",
        Alert('tidings_warnings{rule="NotJudged"} > 0', "5m"),
    ),
    Rule(
        "VersionSkew", "warning", "workers", states.version_skew,
        "A roll-out did not end: some processes are of another version.",
        Alert('tidings_warnings{rule="VersionSkew"} > 0', "0m"),
        verdict=False,
    ),
    Rule(
        "ClockSkew", "warning", "foundations", states.clock_skew,
        "Clocks differ: times on the pages and due times mislead.",
        Alert("abs(tidings_clock_skew_seconds) > $clock_skew_s", "5m"),
        verdict=False,
    ),
    Rule(
        "DigestChannelRefuses", "warning", "digests", digests.channel_refuses,
        "An endpoint refuses us as its channel is set up: what is to be told waits, and costs no attempt.",
        Alert("tidings_digest_channel_not_configured == 1", "15m"),
        verdict=False,
    ),
    Rule(
        "DigestNotTaken", "warning", "digests", digests.nothing_taken,
        "An endpoint answers with failures, or tells us to wait, for an hour: its channel's events and findings wait.",
        Alert('tidings_warnings{rule="DigestNotTaken"} > 0', "5m"),
        verdict=False,
    ),
    Rule(
        "DigestDeadLetters", "warning", "dead_letters", digests.dead_letters_left,
        "Events and findings that an endpoint did not take in all its tries: nobody is told unless somebody requeues.",
        Alert('tidings_warnings{rule="DigestDeadLetters"} > 0', "5m"),
        verdict=False,
    ),
    Rule(
        "RetentionLate", "warning", "recovery", digests.retention_late,
        "What is old is not removed: the ledger grows.",
        Alert("tidings_retention_unfinished_seconds > 86400", "0m"),
        verdict=False,
    ),
)  # fmt: skip
