"""The rules in Prometheus' words, with the thresholds in force. Pure."""

from dataclasses import fields
from string import Template

from shared.domain.health_facts import Thresholds
from shared.domain.health_rules import Rule


def alert_expression(rule: Rule, thresholds: Thresholds) -> str:
    """
    The rule's alert in PromQL with its thresholds put in.

    Raises: ValueError for a rule without an alert.
    """
    if rule.alert is None:
        raise ValueError(f"{rule.name} has no alert")
    values = {field.name: f"{getattr(thresholds, field.name):g}" for field in fields(Thresholds)}
    return Template(rule.alert.expression).substitute(values)
