"""Is it broken? The rules judge a snapshot: warnings, worst first, and the one sentence that is read first. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_findings import Finding, Severity
from shared.domain.health_rules import NOT_JUDGED, RULES, Panel, Rule


@dataclass(frozen=True, slots=True)
class Warning:  # noqa: A001  # the word of the pages
    """One fact that somebody should know, with its number. `since`, `keeps` and `mark` are those of its finding."""

    rule: str
    severity: Severity
    text: str
    since: str | None
    panel: Panel
    keeps: bool = True
    mark: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As the snapshot carries it."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "text": self.text,
            "since": self.since,
            "panel": self.panel,
            "mark": self.mark,
        }


#: The order in which warnings are told.
BY_SEVERITY = {"critical": 0, "warning": 1}
SENDING_NORMALLY = "Sending normally."
_BY_NAME = {rule.name: rule for rule in RULES}

#: When a rule first noticed what it is about, in ISO.
_Noticed = Mapping[tuple[str, str], str | None]


def judge(
    document: Mapping[str, Any],
    thresholds: Thresholds,
    now: datetime,
    *,
    before: Sequence[Mapping[str, Any]] = (),
    on_fault: Callable[[Warning], None] = lambda _: None,
) -> list[Warning]:
    """
    Give every warning of a snapshot, worst cause first: by severity, then in the order of the rules.

    `document` has `at`, `stores` and `sections`; a rule whose sections are missing or not fresh says nothing. `now`
    is aware UTC. `before` are the warnings of the last document: what began earlier than can be seen, or has no
    beginning but the moment in which it was first noticed, keeps that. A rule that raises costs no other: a warning
    says that it could not be judged, and `on_fault` is called with that while the exception is handled.
    """
    facts = Facts(document, now)
    noticed = {(said["rule"], said["mark"]): said["since"] for said in before if said.get("mark")}
    found: list[Warning] = []
    for rule in RULES:
        try:
            found += [_warning(rule, each, noticed, now) for each in rule.find(facts, thresholds)]
        except Exception:  # noqa: BLE001  # a border: one rule's fault must not take what the others say
            unjudged = _not_judged(rule, noticed, now)
            on_fault(unjudged)
            found.append(unjudged)
    return sorted(found, key=lambda warning: BY_SEVERITY[warning.severity])


def _warning(rule: Rule, finding: Finding, noticed: _Noticed, now: datetime) -> Warning:
    since = finding.since
    if finding.mark is not None:
        known = [since or now.isoformat(timespec="milliseconds"), noticed.get((rule.name, finding.mark))]
        since = min((moment for moment in known if moment), key=datetime.fromisoformat)
    severity = finding.severity or rule.severity
    return Warning(rule.name, severity, finding.text, since, rule.panel, finding.keeps, finding.mark)


def _not_judged(rule: Rule, noticed: _Noticed, now: datetime) -> Warning:
    text = f"The rule {rule.name} could not be judged: whether it is so is not known."
    finding = Finding(text, keeps=rule.verdict, mark=rule.name)
    return replace(_warning(_BY_NAME[NOT_JUDGED], finding, noticed, now), panel=rule.panel)


def verdict(warnings: Sequence[Warning]) -> dict[str, Any]:
    """
    Give the one sentence that is read first: `{"text", "severity", "since"}`, severity `ok` where all is well.

    `warnings` are `judge`'s. What says nothing about sending leaves "Sending normally".
    """
    for warning in warnings:
        if warning.severity == "critical" or (_BY_NAME[warning.rule].verdict and warning.keeps):
            return {"text": warning.text, "severity": warning.severity, "since": warning.since}
    return {"text": SENDING_NORMALLY, "severity": "ok", "since": None}
