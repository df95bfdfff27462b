"""
The metrics: a snapshot's document as Prometheus families. Nothing is counted here, so every process says the same.

Counters are sums of the ledger since the beginning: they fall neither with a process nor with Redis nor when minutes
are folded. Gauges are there only while what they measure can be seen: an old value would be a lie. Labels are of small
closed sets; no tenant, no address.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from shared.domain.health_facts import Facts
from shared.domain.health_rules import RULES
from shared.domain.pace import BOUNDS_S

#: How a delivery ended, or was counted on its way; the value of the label `outcome`.
OUTCOMES = ("sent", "failed", "dead_lettered", "unsure", "suppressed", "cancelled", "expired")
_CIRCUIT_STATES = ("closed", "half-open", "open")

Family = Callable[[Facts], Iterable[Metric]]
Labelled = tuple[tuple[str, ...], float]


def _gauge(name: str, meaning: str, labels: tuple[str, ...], samples: Iterable[Labelled]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, meaning: str, labels: tuple[str, ...], samples: Iterable[Labelled]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def traffic(facts: Facts) -> Iterator[Metric]:
    """What was accepted and what became of it, by channel and provider: live deliveries since the beginning."""
    totals = Facts(facts.document, facts.now, any_age=True).rows("traffic", "totals")
    by_channel: dict[str, dict[str, int]] = {}
    for total in totals:
        sums = by_channel.setdefault(total["channel"], {"requests": 0, "accepted": 0})
        for name in sums:
            sums[name] += total["counts"][name]
    yield _counter(
        "tidings_sends_accepted", "Sends accepted, by channel; one with both counts for each.", ("channel",),
        [((channel,), sums["requests"]) for channel, sums in by_channel.items()],
    )  # fmt: skip
    yield _counter(
        "tidings_deliveries_accepted", "Deliveries accepted.", ("channel",),
        [((channel,), sums["accepted"]) for channel, sums in by_channel.items()],
    )  # fmt: skip
    yield _counter(
        "tidings_deliveries", "Deliveries by what became of them; provider is empty where none was called.",
        ("channel", "provider", "outcome"),
        [((total["channel"], total["provider"], outcome), total["counts"][outcome])
         for total in totals for outcome in OUTCOMES],
    )  # fmt: skip
    yield _counter(
        "tidings_attempts", "Calls to a provider that reached a result.", ("channel", "provider"),
        [((total["channel"], total["provider"]), total["counts"]["calls"]) for total in totals if total["provider"]],
    )  # fmt: skip
    yield _counter(
        "tidings_retries", "Deliveries put back for another try after a transient failure.", ("channel", "provider"),
        [((total["channel"], total["provider"]), total["counts"]["retried"]) for total in totals if total["provider"]],
    )  # fmt: skip
    yield _counter(
        "tidings_throttled", "Deliveries put back because the provider told us to wait.", ("channel", "provider"),
        [((total["channel"], total["provider"]), total["counts"]["throttled"])
         for total in totals if total["provider"]],
    )  # fmt: skip
    yield _delivery_seconds(totals)


def _delivery_seconds(totals: list[Mapping[str, Any]]) -> HistogramMetricFamily:
    # No sum: the ledger counts by bucket, and an estimate would look exact.
    family = HistogramMetricFamily(
        "tidings_delivery_seconds",
        "Seconds from acceptance (or the time asked for) to the provider's answer, of what was sent; no sum is kept.",
        labels=("channel", "provider"),
    )
    for total in totals:
        if not total["took"]:
            continue
        below, buckets = 0, []
        for bucket, bound in enumerate(BOUNDS_S, start=1):
            below += total["took"].get(str(bucket), 0)
            buckets.append((f"{float(bound):g}", below))
        buckets.append(("+Inf", sum(total["took"].values())))
        family.add_metric((total["channel"], total["provider"]), buckets=buckets, sum_value=None)
    return family


def work(facts: Facts) -> Iterator[Metric]:
    """What is due, how long it has been, what is open of failures, and when a channel last sent anything."""
    rows = [row for row in facts.rows("work", "due") if row["mode"] == "live"]
    if facts.data("work"):
        ages = {
            (row["channel"], row["lane"]): facts.age_s(row["oldest_due_at"]) or 0.0
            for row in facts.due()
            if row["mode"] == "live"
        }
        due = {(row["channel"], row["lane"]): row["due"] for row in rows}
        lanes = [(channel, lane) for channel in ("email", "sms") for lane in ("single", "bulk")]
        yield _gauge(
            "tidings_due", "Deliveries that are due and in nobody's hands, what a provider keeps back among them.",
            ("channel", "lane"), [(lane, due.get(lane, 0)) for lane in lanes],
        )  # fmt: skip
        if facts.data("providers"):  # only Redis knows who keeps work back
            yield _gauge(
                "tidings_oldest_due_age_seconds", "Age of the oldest work that is due and kept back by nobody; else 0.",
                ("channel", "lane"), [(lane, ages.get(lane, 0.0)) for lane in lanes],
            )  # fmt: skip
            yield _gauge(
                "tidings_last_sent_timestamp_seconds", "When a live provider of the channel last took anything; or 0.",
                ("channel",), [((channel,), _last_sent(facts, channel)) for channel in ("email", "sms")],
            )  # fmt: skip
    failures = facts.data("failures")
    if failures:
        yield _gauge("tidings_dead_letters", "Deliveries whose attempts are used up, now.", (),
                     [((), failures.get("dead_lettered", 0))])  # fmt: skip
        yield _gauge("tidings_unsure", "Parked deliveries whose outcome nobody knows, now.", (),
                     [((), failures.get("unsure", 0))])  # fmt: skip


def _last_sent(facts: Facts, channel: str) -> float:
    age_s = facts.last_accepted_s(channel)
    return 0.0 if age_s is None else facts.now.timestamp() - age_s


def providers(facts: Facts) -> Iterator[Metric]:
    """Each provider: circuit, calls in flight against the cap, gate, hold and set-up."""
    rows = list(facts.providers())
    if not rows:
        return
    yield _gauge(
        "tidings_provider_circuit", "1 for the state that the circuit is in.", ("provider", "state"),
        [((row["provider"], state), float(_circuit(row) == state)) for row in rows for state in _CIRCUIT_STATES],
    )  # fmt: skip
    yield _gauge(
        "tidings_provider_circuit_open_seconds", "How long failures have kept the circuit from being closed; else 0.",
        ("provider",),
        [((row["provider"],), facts.age_s(row["opened_at"]) or 0.0 if row["word"] in ("open", "half-open") else 0.0)
         for row in rows],
    )  # fmt: skip
    capped = [row for row in rows if row["cap"]]
    yield _gauge("tidings_provider_in_flight", "Calls in flight over all processes.", ("provider",),
                 [((row["provider"],), row["in_flight"]) for row in capped])  # fmt: skip
    yield _gauge("tidings_provider_cap", "Most calls in flight over all processes.", ("provider",),
                 [((row["provider"],), row["cap"]) for row in capped])  # fmt: skip
    yield _gauge("tidings_provider_slot_wait_seconds", "Within which 95 % of windows had slots; last five minutes.",
                 ("provider",), [((row["provider"],), row["slot_wait_p95_s"])
                                 for row in capped if row["slot_wait_p95_s"] is not None])  # fmt: skip
    yield _gauge(
        "tidings_provider_gate_closed_seconds", "Seconds until the gate opens that the provider's Retry-After closed.",
        ("provider",), [((row["provider"],), max(0.0, -(facts.age_s(row["gate_until"]) or 0.0))) for row in rows],
    )  # fmt: skip
    yield _gauge(
        "tidings_provider_held_since_timestamp_seconds", "Since when an operator holds the provider; 0 if nobody does.",
        ("provider",),
        [((row["provider"],), datetime.fromisoformat(row["hold"]["since"]).timestamp() if row["hold"] else 0.0)
         for row in rows],
    )  # fmt: skip
    yield _gauge(
        "tidings_provider_not_configured", "1 where our set-up was refused, or lacks settings while messages wait.",
        ("provider",),
        [((row["provider"],), float(row["word"] == "isolated" or bool(row["missing"] and facts.waiting_for(row))))
         for row in rows],
    )  # fmt: skip


def _circuit(row: Mapping[str, Any]) -> str:
    return row["word"] if row["word"] in ("open", "half-open") else "open" if row["word"] == "isolated" else "closed"


def queues(facts: Facts) -> Iterator[Metric]:
    """Each queue: messages, how long the oldest waits, workers, pause."""
    rows = facts.rows("queues", "queues")
    if not rows:
        return
    used = [row for row in rows if row["workers"] or row["no_worker_since"] or row["ready"]]
    yield _gauge(
        "tidings_queue_messages", "Messages of a queue: ready, fetched by a worker, or set aside by the transport.",
        ("queue", "state"),
        [((row["queue"], state), row[state]) for row in rows for state in ("ready", "in_flight", "set_aside")],
    )  # fmt: skip
    yield _gauge("tidings_queue_oldest_message_age_seconds", "Age of the oldest message that is ready; else 0.",
                 ("queue",), [((row["queue"],), facts.age_s(row["oldest_at"]) or 0.0) for row in rows])  # fmt: skip
    yield _gauge("tidings_queue_messages_per_minute", "Messages in the last five full minutes, per minute.",
                 ("queue", "way"),
                 [((row["queue"], way), row[f"{way}_per_minute"])
                  for row in rows for way in ("in", "out")])  # fmt: skip
    yield _gauge("tidings_queue_workers", "Live workers that consume a queue which has ever had one, or has messages.",
                 ("queue",), [((row["queue"],), row["workers"]) for row in used])  # fmt: skip
    if facts.data("work"):
        paused = facts.paused_queues()
        yield _gauge("tidings_queue_paused", "1 while an operator has paused the queue.", ("queue",),
                     [((row["queue"],), float(row["queue"] in paused)) for row in rows])  # fmt: skip


def workers(facts: Facts) -> Iterator[Metric]:
    """Worker processes by kind; one that ended leaves nothing, one that died leaves with its row after 15 minutes."""
    if not facts.data("workers"):
        return
    rows = facts.rows("workers", "workers")
    states: dict[tuple[str, ...], int] = {}
    threads: dict[tuple[str, ...], int] = {}
    busy: dict[tuple[str, ...], int] = {}
    beats: dict[tuple[str, ...], float] = {}
    for row in rows:
        kind = row["kind"]
        state = (kind, row["word"].replace(" ", "_"))
        states[state] = states.get(state, 0) + 1
        if row["word"] == "gone":
            continue
        threads[(kind,)] = threads.get((kind,), 0) + row["threads"]
        busy[(kind,)] = busy.get((kind,), 0) + row["busy"]
        beats[(kind,)] = max(beats.get((kind,), 0.0), facts.age_s(row["beat_at"]) or 0.0)
    yield _gauge("tidings_workers", "Worker processes by what they are.", ("kind", "state"), states.items())
    yield _gauge("tidings_worker_threads", "Threads of the workers that live.", ("kind",), threads.items())
    yield _gauge("tidings_worker_busy_threads", "Threads that have a message.", ("kind",), busy.items())
    yield _gauge("tidings_worker_heartbeat_age_seconds", "Age of the oldest last beat among those that live.",
                 ("kind",), beats.items())  # fmt: skip


def recovery(facts: Facts) -> Iterator[Metric]:
    """The reconciler's passes, the clock's ticks, and what is wrong in the books."""
    data = facts.data("recovery")
    if not data:
        return
    for name, meaning, at in (
        ("tidings_reconciler_last_pass_age_seconds", "Age of the last pass of the reconciler.", data["last_pass_at"]),
        ("tidings_clock_tick_age_seconds", "Age of the newest tick of any clock.", data["last_tick_at"]),
    ):
        age_s = facts.age_s(at or data["first_send_at"])
        if age_s is not None:
            yield _gauge(name, f"{meaning} Of the first send where none was ever seen.", (), [((), max(0.0, age_s))])
    yield _gauge(
        "tidings_recoveries_last_hour", "Stuck work of the last hour, by kind and what was done about it.",
        ("kind", "result"),
        [((kind["kind"], result), kind[result])
         for kind in data["kinds"] for result in ("found", "retried", "requeued", "given_up")],
    )  # fmt: skip
    wrong = data["unaccounted"] or {}
    yield _gauge("tidings_unaccounted_deliveries", "Deliveries that the books cannot place.", (),
                 [((), wrong.get("deliveries", 0))])  # fmt: skip


def stores(facts: Facts) -> Iterator[Metric]:
    """The stores, the snapshot, and what the health rules say."""
    document = facts.document
    yield _gauge("tidings_up", "1 while a store answers.", ("store",),
                 [((name,), float(entry["status"] == "ok")) for name, entry in document["stores"].items()])  # fmt: skip
    yield _gauge("tidings_snapshot_timestamp_seconds", "When these figures were sampled.", (),
                 [((), datetime.fromisoformat(document["at"]).timestamp())])  # fmt: skip
    yield _gauge("tidings_section_up", "1 for a part of the figures that is fresh.", ("section",),
                 [((name,), float(entry["status"] == "ok"))
                  for name, entry in document["sections"].items()])  # fmt: skip
    said = [warning["rule"] for warning in document["warnings"]]
    yield _gauge("tidings_warnings", "Warnings on the pages, by rule.", ("rule",),
                 [((rule.name,), said.count(rule.name)) for rule in RULES])  # fmt: skip
    skews = [((name,), facts.data(name)["skew_s"]) for name in ("postgres", "redis") if facts.data(name)]
    yield _gauge("tidings_clock_skew_seconds", "Clock of a store less that of the web process.", ("store",), skews)
    redis = facts.data("redis")
    if redis:
        yield _gauge("tidings_redis_memory_used_bytes", "Memory in use.", (), [((), redis["used_memory_bytes"])])
        most = redis["max_memory_bytes"]
        if most:
            yield _gauge("tidings_redis_memory_ratio", "Share of the memory limit in use.", (),
                         [((), redis["used_memory_bytes"] / most)])  # fmt: skip
        yield _gauge("tidings_redis_noeviction", "1 where maxmemory-policy is noeviction.", (),
                     [((), float(redis["eviction_policy"] == "noeviction"))])  # fmt: skip
        yield _gauge("tidings_redis_clients", "Connected clients.", (), [((), redis["clients"])])
        yield _counter("tidings_redis_rejected_connections", "Connections refused for want of room; since its start.",
                       (), [((), redis["rejected_connections"])])  # fmt: skip
    info = InfoMetricFamily("tidings_build", "Version of the web process that answers.")
    info.add_metric((), {"version": version("tidings")})
    yield info


#: Every source of families, in the order of the page. Others may add theirs at import.
FAMILIES: list[Family] = [traffic, work, providers, queues, workers, recovery, stores]
