"""What a judged snapshot says once it is old."""

from datetime import timedelta

from shared.domain import health
from shared.domain.health_age import told_with_age
from tests.unit.domain.test_health import LIMITS, NOW, healthy


def test_over_old_figures_no_verdict_says_that_all_is_well() -> None:
    fine = {**healthy(), "warnings": [], "verdict": health.verdict([])}
    assert told_with_age(fine, LIMITS, NOW) == fine
    later = NOW + timedelta(minutes=2)
    told = told_with_age(fine, LIMITS, later)
    assert told["verdict"]["severity"] == "warning"
    assert told["verdict"]["text"].startswith("These figures are 2 min old")
    assert [warning["rule"] for warning in told["warnings"]] == ["SnapshotStale"]
    assert told_with_age(told, LIMITS, later) == told

    warning = {
        "rule": "NothingMoving",
        "severity": "critical",
        "text": "Nothing moves",
        "since": None,
        "panel": "queues",
    }
    grave = {**fine, "warnings": [warning], "verdict": {"text": "Nothing moves", "severity": "critical", "since": None}}
    told = told_with_age(grave, LIMITS, later)
    assert told["verdict"]["text"] == "Nothing moves"
    assert [warning["rule"] for warning in told["warnings"]] == ["NothingMoving", "SnapshotStale"]
