"""Since when something is so: recorded somewhere, or since a snapshot first noticed it."""

from datetime import timedelta
from typing import Any

import pytest

from shared.domain import health
from tests.unit.domain.test_health import LIMITS, NOW, ago, changed, channel, due, judged, provider


@pytest.mark.parametrize(
    "document",
    [
        changed(redis={"eviction_policy": "allkeys-lru"}),
        changed(redis={"used_memory_bytes": 96}),
        changed(postgres={"skew_s": 45.0}),
        changed(recovery={"last_pass_at": "no moment"}),
    ],
)
def test_what_nobody_knows_the_beginning_of_began_when_it_was_noticed(document: dict[str, Any]) -> None:
    (first,) = judged(document)
    assert first.since == NOW.isoformat(timespec="milliseconds")
    later = NOW + timedelta(minutes=2)
    told = [warning.as_json() for warning in judged(document)]

    def said(before: list[dict[str, Any]]) -> str | None:
        found = health.judge({**document, "at": later.isoformat()}, LIMITS, later, before=before)
        return next(warning.since for warning in found if warning.rule == first.rule)

    assert said(told) == first.since
    assert said([]) == later.isoformat(timespec="milliseconds")


def test_two_clocks_began_to_differ_each_at_its_own_time() -> None:
    both = changed(postgres={"skew_s": 45.0}, redis={"skew_s": 45.0})
    told = [{**health.judge(both, LIMITS, NOW)[0].as_json(), "since": ago(hours=1)}]
    assert [warning.since for warning in health.judge(both, LIMITS, NOW, before=told)] == [
        ago(hours=1), NOW.isoformat(timespec="milliseconds"),
    ]  # fmt: skip


def test_settings_are_missing_since_the_oldest_message_waits_for_them() -> None:
    document = changed(
        providers={"providers": [provider(word="not configured", missing=["SMTP_HOST"])]},
        work={"due": [due(minutes=9), due("email_bulk", minutes=4)]},
    )
    assert [(warning.rule, warning.since) for warning in judged(document)] == [
        ("ProviderNotConfigured", ago(minutes=9))
    ]


@pytest.mark.parametrize("minutes_before", [300, 60])
def test_what_began_before_the_hours_that_are_looked_at_keeps_its_beginning(minutes_before: int) -> None:
    """Of failures two hours are looked at: after five, their beginning there is not that of the failures."""
    row = channel(sent_15m=89, failed_15m=11) | {"failing_since": ago(minutes=119)}
    document = changed(traffic={"channels": [row]})
    told = [{**judged(document)[0].as_json(), "since": ago(minutes=minutes_before)}]
    (warning,) = health.judge(document, LIMITS, NOW, before=told)
    assert warning.since == ago(minutes=max(minutes_before, 119))
