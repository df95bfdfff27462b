"""Each rule fires by its fact and not without it; the worst cause is the verdict."""

from copy import deepcopy
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admin.monitoring.judging import thresholds_of
from shared.domain import health
from shared.domain.health_facts import Thresholds
from shared.domain.health_rules import RULES
from shared.settings import Settings, load

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
LIMITS = Thresholds()


def ago(**time: float) -> str:
    return (NOW - timedelta(**time)).isoformat()


def ok(**data: Any) -> dict[str, Any]:
    return {"status": "ok", "at": NOW.isoformat(), "since": None, "data": data}


def provider(name: str = "ches", channel: str = "email", **more: Any) -> dict[str, Any]:
    row = {
        "provider": name, "credential": "a1", "serves": [{"channel": channel, "mode": "live"}], "word": "closed",
        "since": None, "opened_at": None, "isolation": None, "missing": [],
    }  # fmt: skip
    return {**row, **more}


def account(name: str = "ches", **more: Any) -> dict[str, Any]:
    return {"provider": name, "credential": "a1", "last_accepted_at": ago(seconds=5), "hold": None, **more}


def due(queue: str = "email", count: int = 312, **age: float) -> dict[str, Any]:
    channel, lane = queue.split("_", maxsplit=1)[0], "bulk" if queue.endswith("_bulk") else "single"
    oldest = ago(**(age or {"seconds": 2}))
    return {"queue": queue, "channel": channel, "lane": lane, "mode": "live", "due": count, "oldest_due_at": oldest}


def queue(name: str, **more: Any) -> dict[str, Any]:
    row = {"queue": name, "ready": 0, "oldest_at": None, "health": "moving", "growing_minutes": 0}
    return {**row, "no_worker_since": None, **more}


def worker(**more: Any) -> dict[str, Any]:
    row = {
        "name": "w1", "version": "1.0", "queues": ["email", "email_bulk", "ops"], "state": "running", "word": "running",
        "beat_at": ago(seconds=3), "started_at": ago(hours=2), "why": None, "still_since": ago(minutes=5),
    }  # fmt: skip
    return {**row, **more}


def digest_channel(**more: Any) -> dict[str, Any]:
    row = {"name": "ops", "enabled": True, "waiting": 3, "not_configured": None, "not_configured_at": None}
    return {**row, "dead_lettered": 0, "dead_since": None, **more}


def retention(**more: Any) -> dict[str, Any]:
    return {"started_at": ago(hours=25), "ended_at": ago(hours=24), "error": None, **more}


def channel(name: str = "email", **more: int) -> dict[str, Any]:
    names = ("sent_3m", "failed_3m", "sent_15m", "failed_15m", "dead_lettered_15m")
    return {"channel": name, **dict.fromkeys(names, 0), **more}


def healthy() -> dict[str, Any]:
    """A document in which nothing is wrong."""
    return {
        "at": NOW.isoformat(),
        "stores": {"postgres": {"status": "ok", "since": None}, "redis": {"status": "ok", "since": None}},
        "sections": {
            "postgres": ok(skew_s=0.1),
            "redis": ok(skew_s=-0.2, used_memory_bytes=10, max_memory_bytes=100, eviction_policy="noeviction"),
            "work": ok(due=[due()], pauses=[], accounts=[account()], errors={}),
            "providers": ok(providers=[provider()]),
            "queues": ok(queues=[queue("email"), queue("email_bulk"), queue("ops")]),
            "workers": ok(workers=[worker()]),
            "traffic": ok(channels=[channel(sent_15m=900, failed_15m=9)]),
            "recovery": ok(last_pass_at=ago(seconds=40), last_tick_at=ago(seconds=1), first_send_at=ago(days=3),
                           unaccounted=None),
        },
    }  # fmt: skip


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    document = healthy()
    for name, data in sections.items():
        document["sections"][name]["data"].update(data)
    return document


def store_away(name: str) -> dict[str, Any]:
    document = healthy()
    document["stores"][name] = {"status": "away", "since": ago(minutes=3)}
    return document


def section_gone(name: str, **age: float) -> dict[str, Any]:
    document = healthy()
    document["sections"][name] = {"status": "stale", "at": ago(**age), "since": ago(**age), "data": {}}
    return document


def old(**age: float) -> dict[str, Any]:
    return {**healthy(), "at": ago(**age)}


def judged(document: dict[str, Any]) -> list[health.Warning]:
    return health.judge(document, LIMITS, NOW)


@pytest.mark.parametrize(
    ("document", "since"),
    [
        (changed(traffic={"channels": [channel(sent_15m=89, failed_15m=11) | {"failing_since": ago(minutes=9)}]}), 9),
        (changed(traffic={"channels": [
            channel(dead_lettered_15m=15) | {"dead_lettering_since": ago(minutes=4)},
            channel("sms", dead_lettered_15m=5) | {"dead_lettering_since": ago(minutes=7)},
        ]}), 7),
        (changed(traffic={"channels": [
            channel(dead_lettered_15m=25) | {"dead_lettering_since": ago(minutes=4)},
            channel("sms") | {"dead_lettering_since": None},
        ]}), 4),
        (changed(queues={"queues": [
            queue("email", health="arriving faster", ready=900, growing_minutes=12),
            queue("email_bulk"), queue("ops"),
        ]}), 12),
    ],
)  # fmt: skip
def test_a_warning_says_since_its_first_bad_minute(document: dict[str, Any], since: int) -> None:
    [warning] = judged(document)
    assert warning.since == ago(minutes=since)


def with_digests(**data: Any) -> dict[str, Any]:
    document = healthy()
    document["sections"]["digests"] = ok(**data)
    return document


#: rule, a document in which it speaks, words of what it says, and one at the other side of the threshold
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("PostgresUnreachable", store_away("postgres"), "nothing is accepted or sent", healthy()),
    ("RedisUnreachable", store_away("redis"), "without shared caps", healthy()),
    (
        "Unaccounted",
        changed(recovery={"unaccounted": {"deliveries": 3, "sends": ["s1"], "at": ago(minutes=1)}}),
        "3 deliveries are unaccounted for in the books of send s1",
        changed(recovery={"unaccounted": {"deliveries": 0, "sends": []}}),
    ),
    (
        "NoWorkers",
        changed(workers={"workers": [worker(queues=["ops", "email_bulk"])]},
                work={"accounts": [account(last_accepted_at=ago(minutes=4))]}),
        "Nothing has been sent for 4 min although 312 are due: no running worker on queue `email`.",
        changed(workers={"workers": [worker(queues=["ops", "email_bulk"])]},
                work={"pauses": [{"queue": "email", "by": "kim", "reason": "x", "since": ago(minutes=9)}]}),
    ),
    (
        "NoWorkers",
        changed(workers={"workers": [worker(beat_at=ago(seconds=30))]}),
        "No running worker on queue `email`: 312 are due.",
        changed(workers={"workers": [worker(beat_at=ago(seconds=12))]}),
    ),
    (
        "NoWorkers",
        changed(workers={"workers": [worker(state="draining")]}, work={"due": []},
                queues={"queues": [queue("email", no_worker_since=ago(minutes=1)), queue("ops", ready=2),
                                   queue("sms")]}),
        "No running worker on queues `email` and `ops`; 2 messages wait.",
        changed(workers={"workers": [worker(state="draining")]}, work={"due": []},
                queues={"queues": [queue("email", no_worker_since=ago(seconds=20)), queue("sms")]}),
    ),
    (
        "NothingMoving",
        changed(work={"due": [due(count=1, minutes=6)], "accounts": [account(last_accepted_at=ago(minutes=4))]}),
        "Nothing has been sent for 4 min although 1 e-mail is due.",
        changed(work={"due": [due(minutes=6)], "accounts": [account(last_accepted_at=ago(minutes=2))]}),
    ),
    (
        "NothingMoving",
        changed(work={"due": [due(minutes=6)], "accounts": []}),
        "Nothing has been sent for 6 min although 312 e-mails are due.",
        changed(work={"due": [due(minutes=4)], "accounts": []}),
    ),
    (
        "CircuitOpenLong",
        changed(providers={"providers": [provider(word="open", opened_at=ago(minutes=11))]},
                work={"due": [due(count=4210, minutes=12)]}),
        "E-mail provider ches circuit open for 11 min: 4,210 e-mails are waiting, none are failing.",
        changed(providers={"providers": [provider(word="open", opened_at=ago(minutes=9))]}),
    ),
    (
        "CircuitOpen",
        changed(providers={"providers": [provider(word="half-open", opened_at=ago(minutes=9))]},
                traffic={"channels": [channel(failed_3m=2)]}),
        "circuit open for 9 min: 312 e-mails are waiting.",
        changed(providers={"providers": [provider(opened_at=ago(minutes=9))]}),
    ),
    (
        "ProviderNotConfigured",
        changed(providers={"providers": [provider(word="isolated", isolation={"reason": "the key was refused"})]}),
        "E-mail provider ches is not set up right: the key was refused. 312 e-mails are waiting.",
        changed(providers={"providers": [provider(missing=["CHES_BASE_URL"], word="not configured")]},
                work={"due": []}),
    ),
    (
        "ProviderNotConfigured",
        changed(providers={"providers": [provider("none", "sms", missing=["SMS_PROVIDER"], word="not configured")]},
                work={"due": [due("sms", count=1)]}),
        "SMS provider none lacks settings (SMS_PROVIDER): 1 SMS is waiting.",
        healthy(),
    ),
    (
        "ProviderHeld",
        changed(work={"accounts": [account(hold={"by": "kim", "reason": "moving", "since": ago(minutes=20)})]}),
        "E-mail provider ches held by kim (moving): 312 e-mails are waiting.",
        healthy(),
    ),
    (
        "QueuePaused",
        changed(work={"pauses": [{"queue": "email", "by": "kim", "reason": "moving", "since": ago(minutes=20)}]}),
        "Queue email paused by kim (moving): 312 are waiting.",
        healthy(),
    ),
    (
        "FailureRatioCritical",
        changed(traffic={"channels": [channel(sent_15m=89, failed_15m=11)]}),
        "11.0 % of e-mails failed in the last 15 min: 11 of 100.",
        changed(traffic={"channels": [channel(sent_15m=90, failed_15m=10)]}),
    ),
    (
        "FailureRatioHigh",
        changed(traffic={"channels": [channel(sent_15m=48, failed_15m=2)]}),
        "4.0 % of e-mails failed in the last 15 min: 2 of 50.",
        changed(traffic={"channels": [channel(sent_15m=47, failed_15m=2), channel("sms", sent_15m=97, failed_15m=3)]}),
    ),
    (
        "FailureRatioHigh",
        changed(traffic={"channels": [channel(sent_15m=80, failed_15m=20, open_15m=4)]}),
        "4.0 % of e-mails failed in the last 15 min: 4 of 100, without 16 requeued or discarded since.",
        changed(traffic={"channels": [channel(sent_15m=80, failed_15m=20, open_15m=3)]}),
    ),
    (
        "NotMoving",
        changed(queues={"queues": [queue("email", health="not moving", ready=14, oldest_at=ago(minutes=6))]}),
        "Queue `email` is not moving: 14 messages wait, the oldest for 6 min.",
        changed(queues={"queues": [queue("email", health="not moving", ready=14, oldest_at=ago(minutes=6))]},
                work={"pauses": [{"queue": "email", "by": "kim", "reason": "x", "since": ago(minutes=9)}]}),
    ),
    (
        "ReconcilerLate",
        changed(recovery={"last_pass_at": ago(minutes=4)}),
        "The last reconciler pass was 4 min ago",
        changed(recovery={"last_pass_at": ago(minutes=2)}),
    ),
    (
        "ReconcilerLate",
        changed(recovery={"last_pass_at": None}),
        "No reconciler pass has ever run",
        changed(recovery={"last_pass_at": None, "first_send_at": ago(seconds=30)}),
    ),
    (
        "ClockLate",
        changed(recovery={"last_tick_at": ago(minutes=2)}),
        "The clock's last tick was 2 min ago",
        changed(recovery={"last_tick_at": ago(seconds=50)}),
    ),
    (
        "ClockLate",
        changed(recovery={"last_tick_at": None}),
        "No clock has ever ticked",
        changed(recovery={"last_tick_at": None, "first_send_at": None}),
    ),
    (
        "WorkerZombie",
        changed(workers={"workers": [worker(word="not consuming", why="it took none for 5 min")]}),
        "Worker w1 is alive but not consuming: it took none for 5 min.",
        healthy(),
    ),
    (
        "ArrivingFaster",
        changed(queues={"queues": [queue("email", health="arriving faster", ready=900, growing_minutes=12)]}),
        "faster than they are worked on for 12 min: 900 wait.",
        healthy(),
    ),
    (
        "DeadLettersGrowing",
        changed(traffic={"channels": [channel(dead_lettered_15m=15), channel("sms", dead_lettered_15m=5)]}),
        "20 deliveries were dead-lettered in the last 15 min.",
        changed(traffic={"channels": [channel(dead_lettered_15m=19)]}),
    ),
    (
        "DeadLettersGrowing",
        changed(traffic={"channels": [channel(dead_lettered_15m=30, dead_open_15m=20)]}),
        "20 deliveries were dead-lettered in the last 15 min, without 10 requeued or discarded since.",
        changed(traffic={"channels": [channel(dead_lettered_15m=30, dead_open_15m=19)]}),
    ),
    (
        "RedisMemoryHigh",
        changed(redis={"used_memory_bytes": 81 * 1024**2, "max_memory_bytes": 100 * 1024**2}),
        "Redis uses 81 % of its 100 MB.",
        changed(redis={"used_memory_bytes": 10**12, "max_memory_bytes": None}),
    ),
    (
        "RedisNotNoEviction",
        changed(redis={"eviction_policy": "allkeys-lru"}),
        "maxmemory-policy is allkeys-lru",
        healthy(),
    ),
    ("SnapshotStale", old(minutes=2), "These figures are 2 min old", old(seconds=50)),
    (
        "SnapshotStale",
        section_gone("traffic", minutes=2),
        "cannot be refreshed: traffic.",
        section_gone("traffic", seconds=30),
    ),
    (
        "NotJudged",
        changed(recovery={"last_pass_at": "no moment"}),
        "The rule ReconcilerLate could not be judged",
        healthy(),
    ),
    (
        "VersionSkew",
        changed(workers={"workers": [worker(), worker(version="1.1", started_at=ago(minutes=16))]}),
        "Workers of versions 1.0 and 1.1 run side by side",
        changed(workers={"workers": [worker(), worker(version="1.1", started_at=ago(minutes=14))]}),
    ),
    (
        "ClockSkew",
        changed(postgres={"skew_s": 45.0}),
        "The clock of Postgres is 45 s ahead of that of the web process.",
        changed(redis={"skew_s": -29.0}),
    ),
    (
        "DigestChannelRefuses",
        with_digests(channels=[digest_channel(not_configured="webhook_404: gone.", not_configured_at=ago(hours=1))]),
        "Digest channel ops is not set up right: webhook_404: gone; 3 wait.",
        with_digests(channels=[digest_channel(), digest_channel(enabled=False, not_configured="x")]),
    ),
    (
        "DigestNotTaken",
        with_digests(channels=[digest_channel(failing_since=ago(hours=6))]),
        "Digest channel ops has taken no message for 6 h; 3 wait.",
        with_digests(channels=[digest_channel(failing_since=ago(minutes=59))]),
    ),
    (
        "DigestDeadLetters",
        with_digests(channels=[
            digest_channel(dead_lettered=3, dead_since=ago(hours=2)), digest_channel(name="audit", dead_lettered=1),
        ]),
        "4 notifications of digests are dead-lettered (ops, audit): nobody is told unless somebody requeues.",
        with_digests(channels=[digest_channel(), digest_channel(enabled=False, dead_lettered=1)]),
    ),
    (
        "RetentionLate",
        with_digests(retention=retention(ended_at=None, error="interrupted: OperationalError")),
        "Retention has not come to its end for 1 day (interrupted: OperationalError)",
        with_digests(retention=retention()),
    ),
]  # fmt: skip


def test_where_nothing_is_wrong_nothing_is_said() -> None:
    assert judged(healthy()) == []
    assert health.verdict([]) == {"text": "Sending normally.", "severity": "ok", "since": None}


@pytest.mark.parametrize(("rule", "wrong", "words", "right"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_speaks_by_its_fact_and_is_silent_on_the_other_side(
    rule: str, wrong: dict[str, Any], words: str, right: dict[str, Any]
) -> None:
    said = [warning.text for warning in judged(wrong) if warning.rule == rule]
    assert len(said) == 1
    assert words in said[0]
    assert [warning for warning in judged(right) if warning.rule == rule] == []


def test_dead_letters_of_digests_are_told_since_the_first_of_them_and_of_many_channels_the_first_are_named() -> None:
    rows = [digest_channel(name=f"c{n}", dead_lettered=1, dead_since=ago(hours=n)) for n in range(1, 6)]
    [warning] = judged(with_digests(channels=rows))
    assert (warning.since, warning.panel) == (ago(hours=5), "dead_letters")
    assert "(c1, c2, c3 and 2 more)" in warning.text


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == {rule.name for rule in RULES}


@pytest.mark.parametrize("percent", [4, 11])
def test_a_large_share_of_failures_is_critical(percent: int) -> None:
    document = changed(traffic={"channels": [channel(sent_15m=100 - percent, failed_15m=percent)]})
    [warning] = judged(document)
    assert warning.severity == ("critical" if percent > 10 else "warning")


@pytest.mark.parametrize(
    "why",
    [
        {"providers": {"providers": [provider(word=word)]}}
        for word in ("open", "half-open", "isolated", "gate", "not configured")
    ]
    + [
        {"work": {"accounts": [account(hold={"by": "kim", "reason": "x", "since": ago(hours=3)})]}},
        {"work": {"pauses": [{"queue": "email", "by": "kim", "reason": "x", "since": ago(hours=3)}]}},
    ],
)
def test_what_is_held_on_purpose_is_not_stuck_however_old(why: dict[str, Any]) -> None:
    document = changed(work={"due": [due(hours=2)], "accounts": [account(last_accepted_at=ago(hours=2))]})
    assert [warning.rule for warning in judged(document)] == ["NothingMoving"]
    for section, data in why.items():
        for name, rows in data.items():
            quiet = {"last_accepted_at": ago(hours=2)} if name == "accounts" else {}
            document["sections"][section]["data"][name] = [{**row, **quiet} for row in rows]
    assert "NothingMoving" not in {warning.rule for warning in judged(document)}


def test_without_redis_nobody_knows_what_is_held_back_and_nothing_is_called_stuck() -> None:
    document = changed(work={"due": [due(hours=2)], "accounts": [account(last_accepted_at=ago(seconds=3))]})
    document["stores"]["redis"] = {"status": "away", "since": ago(minutes=1)}
    for name in ("providers", "queues", "workers", "redis"):
        document["sections"][name] = {"status": "unavailable", "at": None, "since": ago(minutes=1), "data": {}}
    assert [warning.rule for warning in judged(document)] == ["RedisUnreachable"]


def test_a_test_key_s_work_is_no_alarm_of_the_channel() -> None:
    document = changed(work={"due": [{**due(hours=2), "mode": "test"}], "accounts": []})
    assert judged(document) == []


def test_the_worst_cause_is_said_first_and_what_says_nothing_of_sending_is_no_verdict() -> None:
    document = changed(redis={"eviction_policy": "allkeys-lru"})
    warnings = judged(document)
    assert [warning.rule for warning in warnings] == ["RedisNotNoEviction"]
    assert health.verdict(warnings)["text"] == "Sending normally."

    document["sections"]["providers"]["data"]["providers"] = [provider(word="open", opened_at=ago(minutes=20))]
    document["sections"]["workers"]["data"]["workers"] = [worker(queues=["email"])]
    warnings = judged(document)
    assert [warning.rule for warning in warnings] == ["CircuitOpenLong", "RedisNotNoEviction"]
    assert health.verdict(warnings)["text"].startswith("E-mail provider ches circuit open for 20 min")


def test_what_keeps_nothing_from_going_is_a_warning_and_not_the_verdict() -> None:
    document = changed(work={"pauses": [{"queue": "sms", "by": "kim", "reason": "x", "since": ago(hours=1)}]})
    assert [warning.rule for warning in judged(document)] == ["QueuePaused"]
    assert health.verdict(judged(document))["text"] == "Sending normally."
    document["sections"]["work"]["data"]["due"] = [due("sms")]
    assert health.verdict(judged(document))["text"] == "Queue sms paused by kim (x): 312 are waiting."


def test_sections_that_are_not_fresh_say_nothing_beside_their_age() -> None:
    document = healthy()
    for entry in document["sections"].values():
        entry |= {"status": "stale", "since": ago(minutes=5)}
    document["sections"]["work"]["data"]["due"] = [due(hours=9)]
    assert {warning.rule for warning in judged(document)} == {"SnapshotStale"}
    assert judged({"at": NOW.isoformat(), "stores": {}, "sections": {}}) == []


def test_a_rule_that_raises_is_named_and_costs_no_other() -> None:
    document = changed(redis={"eviction_policy": "allkeys-lru"}, recovery={"last_pass_at": "no moment"})
    told: list[str] = []
    warnings = health.judge(document, LIMITS, NOW, on_fault=lambda unjudged: told.append(unjudged.text))
    assert [warning.rule for warning in warnings] == ["NotJudged", "RedisNotNoEviction"]
    assert told == [warnings[0].text]
    assert "The rule ReconcilerLate could not be judged" in told[0]
    assert health.verdict(warnings)["text"] == "Sending normally."


def test_where_a_rule_about_sending_raises_all_is_not_called_well() -> None:
    warnings = judged(changed(recovery={"last_tick_at": "no moment"}))
    assert [warning.rule for warning in warnings] == ["NotJudged"]
    assert health.verdict(warnings)["text"].startswith("The rule ClockLate could not be judged")
    assert health.verdict(warnings)["severity"] == "warning"


def test_judging_changes_nothing() -> None:
    document = CASES[3][1]
    before = deepcopy(document)
    judged(document)
    assert document == before


def test_the_thresholds_are_those_of_the_settings() -> None:
    defaults = thresholds_of(load(database_url="postgresql://x", redis_url="redis://x"))
    assert defaults == Thresholds()
    names = {name for name in Settings.model_fields if name.startswith("monitoring_")}
    changed = {name: Settings.model_fields[name].default + 1 for name in names}
    others = thresholds_of(load(database_url="postgresql://x", redis_url="redis://x", **changed))
    same = {each.name for each in fields(Thresholds) if getattr(others, each.name) == getattr(defaults, each.name)}
    assert same == {"reconcile_interval_s", "worker_hung_s"}  # those of the reconciler's own settings
