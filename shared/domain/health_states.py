"""What is wrong with the machinery: reconciler, clock, workers, Redis, the snapshot itself. Pure."""

from collections.abc import Iterator

from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_findings import Finding
from shared.domain.words import duration


def reconciler_late(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """The newest pass is older than some intervals, or there never was one."""
    data = facts.data("recovery")
    if not data:
        return
    allowed_s = limits.reconcile_interval_s * limits.reconciler_late_intervals
    age_s = facts.age_s(data["last_pass_at"])
    if age_s is None:
        if (facts.age_s(data["first_send_at"]) or 0.0) > allowed_s:
            yield Finding("No reconciler pass has ever run: is `worker_ops` up?", data["first_send_at"])
    elif age_s > allowed_s:
        yield Finding(
            f"The last reconciler pass was {duration(age_s)} ago; nothing lost is found.", data["last_pass_at"]
        )


def clock_late(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """No clock has claimed a tick lately, or none ever did though there is something to send."""
    data = facts.data("recovery")
    ticked_at, first_send_at = data.get("last_tick_at"), data.get("first_send_at")
    age_s = facts.age_s(ticked_at or first_send_at)
    if age_s is None or age_s <= limits.clock_late_s:
        return
    if ticked_at:
        text = f"The clock's last tick was {duration(age_s)} ago: nothing that waits for a time begins."
        yield Finding(text, ticked_at)
    else:  # sent it is all the same, until something has to wait
        text = "No clock has ever ticked: nothing that waits for a time begins. Is `clock` up?"
        yield Finding(text, first_send_at, keeps=False)


def worker_zombie(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Processes that beat and do not work."""
    for worker in facts.rows("workers", "workers"):
        if worker["word"] == "not consuming" and (facts.age_s(worker["beat_at"]) or 0.0) <= limits.beat_late_s:
            yield Finding(
                f"Worker {worker['name']} is alive but not consuming: {worker['why']}.", worker["still_since"]
            )


def version_skew(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Processes of another version, long after a roll-out began."""
    living = [worker for worker in facts.rows("workers", "workers") if worker["word"] != "gone"]
    first: dict[str, str] = {}
    for worker in living:
        first[worker["version"]] = min(worker["started_at"], first.get(worker["version"], worker["started_at"]))
    if len(first) < 2:  # noqa: PLR2004  # one version is none too many
        return
    newest = max(first.values())
    if (facts.age_s(newest) or 0.0) > limits.version_skew_s:
        versions = " and ".join(sorted(first))
        yield Finding(f"Workers of versions {versions} run side by side; a roll-out did not end.", newest)


def clock_skew(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Clocks of web, Postgres and Redis that differ."""
    for section, name in (("postgres", "Postgres"), ("redis", "Redis")):
        skew_s = facts.data(section).get("skew_s")
        if skew_s is not None and abs(skew_s) > limits.clock_skew_s:
            way = "ahead of" if skew_s > 0 else "behind"
            yield Finding(f"The clock of {name} is {duration(abs(skew_s))} {way} that of the web process.", mark=name)


def redis_memory_high(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Redis near its limit: over it, it refuses every message."""
    data = facts.data("redis")
    most, used = data.get("max_memory_bytes"), data.get("used_memory_bytes", 0)
    if most and used * 100 > limits.redis_memory_percent * most:
        percent = used * 100 / most
        text = f"Redis uses {percent:.0f} % of its {most / 1024**2:,.0f} MB."
        grave = percent > 95  # noqa: PLR2004  # it refuses writes soon
        yield Finding(text, severity="critical" if grave else None, mark="memory")


def redis_not_noeviction(facts: Facts, _: Thresholds) -> Iterator[Finding]:
    """An eviction policy that drops queues silently."""
    policy = facts.data("redis").get("eviction_policy")
    if policy and policy != "noeviction":
        yield Finding(f"Redis may drop queues: maxmemory-policy is {policy}, not noeviction.", mark="policy")


def figures_old(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Nobody has made a document for long."""
    age_s = facts.age_s(facts.document.get("at"))
    if age_s is not None and age_s > limits.snapshot_stale_s:
        yield Finding(f"These figures are {duration(age_s)} old: no web process could make newer ones.",
                      facts.document["at"])  # fmt: skip


def snapshot_stale(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """Figures that are older than they look, while their store answers."""
    if old := next(figures_old(facts, limits), None):
        yield old
        return
    late = {
        name: entry.get("since")
        for name, entry in facts.document.get("sections", {}).items()
        if entry.get("status") != "ok" and (facts.age_s(entry.get("since")) or 0.0) > limits.snapshot_stale_s
    }
    away = [name for name, entry in facts.document.get("stores", {}).items() if entry.get("status") != "ok"]
    if late and not away:
        since = min((moment for moment in late.values() if moment), default=None)
        yield Finding(f"Parts of these figures cannot be refreshed: {', '.join(sorted(late))}.", since)
