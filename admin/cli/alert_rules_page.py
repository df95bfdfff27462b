"""docs/alerts/tidings.rules.yml, made from the table of health rules: one alert for each that has one."""

import json

from shared.domain.health_alerts import alert_expression
from shared.domain.health_facts import Thresholds
from shared.domain.health_rules import RULES

_HEAD = """\
# Made from shared/domain/health_rules.py by `tidings docs`; a test compares the two. Thresholds are the defaults of the
# MONITORING_* settings: who changes one changes it here too. severity `critical` pages somebody, `warning` is a ticket.
# The job of the web processes' /metrics may have any name; scrape each of them or any one: they say the same.
groups:
  - name: tidings
    rules:
"""
#: The runbook's page, for `runbook_url`.
_RUNBOOK = "docs/runbook.md"


def alert_rules_page() -> str:
    """The whole file; JSON strings are YAML strings."""
    return _HEAD + "".join(
        f"      - alert: Tidings{rule.name}\n"
        f"        expr: {json.dumps(alert_expression(rule, Thresholds()))}\n"
        f"        for: {rule.alert.holds}\n"
        f"        labels:\n"
        f"          severity: {rule.severity}\n"
        f"        annotations:\n"
        f"          summary: {json.dumps(rule.means)}\n"
        f"          runbook_url: {json.dumps(f'{_RUNBOOK}#{anchor(rule.name)}')}\n"
        for rule in RULES
        if rule.alert is not None
    )


def anchor(rule: str) -> str:
    """The place of an alert on the runbook's page, as its renderer names a heading of the alert's name."""
    return f"tidings{rule}".lower()
