"""The alert rules on series as Prometheus keeps them, with its own tool: what two web processes tell counts once."""

import json
import subprocess
from pathlib import Path

import pytest

from admin.cli.alert_rules_page import alert_rules_page

DEAD = 'tidings_deliveries_total{channel="email",provider="ches",outcome="dead_lettered",instance="%s"}'
SENT = 'tidings_deliveries_total{channel="email",provider="ches",outcome="sent",instance="%s"}'
#: What is so while all is well, so that no other alert is mixed up with those of a case.
WELL = {
    'tidings_up{store="postgres"}': "1x60",
    'tidings_up{store="redis"}': "1x60",
    "tidings_snapshot_timestamp_seconds": "0+60x60",
}


def each(series: str, values: str) -> dict[str, str]:
    """The same from two processes."""
    return {series % name: values for name in ("web:1", "web:2")}


def fires(promtool: str, folder: Path, alert: str, series: dict[str, str]) -> bool:
    """Whether the alert is there half an hour after the series begin."""
    (folder / "rules.yml").write_text(alert_rules_page(), encoding="utf-8")
    given = [{"series": name, "values": values} for name, values in {**WELL, **series}.items()]
    expected = {"eval_time": "30m", "alertname": alert, "exp_alerts": []}
    test = {"interval": "1m", "input_series": given, "alert_rule_test": [expected]}
    asked = folder / "test.yml"
    asked.write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", str(asked)], capture_output=True, text=True, check=False)
    said = f"{done.stdout}{done.stderr}"
    is_there = f'alertname="{alert}"' in said
    assert done.returncode == int(is_there), said
    return is_there


@pytest.mark.parametrize(
    ("alert", "wrong", "right"),
    [
        ("TidingsDeadLettersGrowing", each(DEAD, "0+2x60"), each(DEAD, "0+1x60")),
        (
            "TidingsFailureRatioCritical",
            each(DEAD, "0+2x60") | each(SENT, "0+2x60"),
            each(DEAD, "0+1x60") | each(SENT, "0+1x60"),
        ),
        (
            "TidingsSnapshotStale",
            {'tidings_section_up{section="queues"}': "0x60"},
            {'tidings_section_up{section="queues"}': "0x60", 'tidings_up{store="redis"}': "0x60"},
        ),
        (
            "TidingsNothingMoving",
            {
                'tidings_oldest_due_age_seconds{channel="email",lane="bulk"}': "0+60x60",
                'tidings_last_sent_timestamp_seconds{channel="email"}': "0x60",
            },
            {
                'tidings_oldest_due_age_seconds{channel="email",lane="bulk"}': "0+60x60",
                'tidings_last_sent_timestamp_seconds{channel="email"}': "0+60x60",
            },
        ),
        (
            "TidingsNotJudged",
            {'tidings_warnings{rule="NotJudged"}': "1x60"},
            {'tidings_warnings{rule="NotJudged"}': "0x60"},
        ),
    ],
)  # fmt: skip
def test_an_alert_fires_by_its_fact_and_not_without_it(
    promtool: str, tmp_path: Path, alert: str, wrong: dict[str, str], right: dict[str, str]
) -> None:
    assert fires(promtool, tmp_path, alert, wrong)
    assert not fires(promtool, tmp_path, alert, right)
