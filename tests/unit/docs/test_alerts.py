"""The alert rules and the dashboard: of the metrics that there are, and in Prometheus's own grammar."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from admin.cli.alert_rules_page import alert_rules_page, anchor
from admin.cli.grafana_page import grafana_page
from admin.monitoring import digest_section
from admin.monitoring.metric_families import FAMILIES
from shared.domain.health_alerts import alert_expression
from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_rules import RULES
from tests.support.processes import CHECKOUT
from tests.unit.domain.test_health import NOW, account, digest_channel, healthy, ok, provider, retention

_WORDS = re.compile(r"\btidings_[a-z_]+\b")


def document() -> dict[str, Any]:
    """A document in which every family has something to tell."""
    found = healthy()
    counts = dict.fromkeys(
        ("requests", "accepted", "calls", "sent", "failed", "dead_lettered", "unsure", "suppressed", "cancelled",
         "expired", "retried", "throttled"), 1,
    )  # fmt: skip
    totals = [{"channel": "email", "provider": "ches", "counts": counts, "took": {"1": 1}}]
    found["sections"]["traffic"]["data"]["totals"] = totals
    found["sections"]["failures"] = {"status": "ok", "at": NOW.isoformat(), "data": {"dead_lettered": 1, "unsure": 0}}
    row = provider(cap=5, in_flight=1, gate_until=None, slot_wait_p95_s=0.4)
    found["sections"]["providers"]["data"]["providers"] = [row]
    found["sections"]["work"]["data"]["accounts"] = [account()]
    for queue in found["sections"]["queues"]["data"]["queues"]:
        queue |= {"in_flight": 0, "set_aside": 0, "in_per_minute": 1, "out_per_minute": 1, "workers": 1}
    for worker in found["sections"]["workers"]["data"]["workers"]:
        worker |= {"kind": "worker_send", "threads": 4, "busy": 1}
    kinds = [{"kind": "batch", "found": 1, "retried": 1, "requeued": 0, "given_up": 0}]
    found["sections"]["recovery"]["data"]["kinds"] = kinds
    found["sections"]["redis"]["data"] |= {"clients": 3, "rejected_connections": 0}
    told = [{"channel": "ops", "kind": "event", "became": became, "count": 1} for became in ("sent", "transient")]
    waits = [{"channel": "ops", "kind": "event", "count": 1}]
    found["sections"]["digests"] = ok(
        channels=[digest_channel()], counts=told, waiting=waits, retention=retention(ended_at=None)
    )
    return {**found, "warnings": []}


def samples() -> set[str]:
    assert digest_section.families in FAMILIES
    facts = Facts(document(), NOW)
    return {sample.name for family in FAMILIES for metric in family(facts) for sample in metric.samples}


def queries() -> list[str]:
    panels = json.loads(grafana_page())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def in_prometheus_words(query: str) -> str:
    return re.sub(r"\$(\w+)", ".*", query)


def test_every_metric_of_an_alert_and_of_the_dashboard_exists() -> None:
    known = samples()
    asked = {word for rule in RULES if rule.alert for word in _WORDS.findall(alert_expression(rule, Thresholds()))}
    asked |= {word for query in queries() for word in _WORDS.findall(query)}
    variables = json.loads(grafana_page())["templating"]["list"][1:]
    asked |= {word for variable in variables for word in _WORDS.findall(variable["query"]["query"])}
    assert asked - known == set()


def test_the_page_of_metrics_names_exactly_those_that_there_are() -> None:
    page = (CHECKOUT / "docs/metrics.md").read_text(encoding="utf-8")
    listed = {word for line in page.splitlines() if line.startswith("| `") for word in _WORDS.findall(line)}
    assert samples() - listed == set()
    assert listed - samples() == set()


def test_the_rules_that_an_alert_counts_by_name_exist() -> None:
    named = {name for rule in RULES if rule.alert for name in re.findall(r'rule="(\w+)"', rule.alert.expression)}
    assert named <= {rule.name for rule in RULES}
    assert "$" not in "".join(alert_expression(rule, Thresholds()) for rule in RULES if rule.alert)


def test_every_alert_has_its_place_in_the_runbook() -> None:
    headings = re.findall(
        r"^### (Tidings\S+)$", (CHECKOUT / "docs/runbook.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    alerts = [f"Tidings{rule.name}" for rule in RULES if rule.alert]
    assert headings == alerts
    assert {anchor(rule.name) for rule in RULES if rule.alert} == {heading.lower() for heading in headings}


def test_the_dashboard_has_its_rows_its_variables_and_no_panel_over_another() -> None:
    dashboard = json.loads(grafana_page())
    assert [panel["title"].split(" (")[0] for panel in dashboard["panels"] if panel["type"] == "row"] == [
        "What goes through", "What it goes through", "Detail",
    ]  # fmt: skip
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "channel", "provider", "queue"]
    places = [
        (x, y)
        for panel in dashboard["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24


def test_every_query_is_balanced_and_has_no_place_left_to_fill() -> None:
    for query in [*queries(), *(alert_expression(rule, Thresholds()) for rule in RULES if rule.alert)]:
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query
        assert query.count('"') % 2 == 0, query


def test_prometheus_itself_finds_no_fault_in_the_metrics(promtool: str) -> None:
    class Families:
        def collect(self) -> Iterator[Metric]:
            return (metric for family in FAMILIES for metric in family(Facts(document(), NOW)))

    registry = CollectorRegistry()
    registry.register(Families())
    done = subprocess.run(
        [promtool, "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_prometheus_itself_reads_the_rules_and_the_queries(promtool: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(alert_rules_page(), encoding="utf-8")
    asked = tmp_path / "queries.yml"
    asked.write_text(
        "groups:\n  - name: queries\n    rules:\n"
        + "".join(
            f"      - record: query_{number}\n        expr: {json.dumps(in_prometheus_words(query))}\n"
            for number, query in enumerate(queries())
        ),
        encoding="utf-8",
    )
    for file in (rules, asked):
        done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
