"""What a judged snapshot says once it is old. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.domain.health import BY_SEVERITY, Warning  # noqa: A004  # the word of the pages
from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_states import figures_old


def told_with_age(document: Mapping[str, Any], thresholds: Thresholds, now: datetime) -> Mapping[str, Any]:
    """
    Give a judged document as it may be shown at `now`: over old figures no verdict says that all is well.

    What was critical stays the verdict; that the figures are old is a warning under it.
    """
    finding = next(figures_old(Facts(document, now), thresholds), None)
    if finding is None:
        return document
    old = Warning("SnapshotStale", "warning", finding.text, finding.since, "foundations").as_json()
    others = [warning for warning in document["warnings"] if warning["rule"] != old["rule"]]
    warnings = sorted([old, *others], key=lambda warning: BY_SEVERITY[warning["severity"]])
    said = document["verdict"]
    if said["severity"] != "critical":
        said = {"text": old["text"], "severity": old["severity"], "since": old["since"]}
    return {**document, "warnings": warnings, "verdict": said}
