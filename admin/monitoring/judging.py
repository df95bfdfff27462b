"""What a snapshot means: the warnings, worst first, and the one sentence that is read first."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.domain import health
from shared.domain.health_facts import Thresholds
from shared.settings import Settings


def judge(
    document: Mapping[str, Any], settings: Settings, now: datetime
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Give the warnings `{"rule", "severity", "text", "since", "panel"}` and the verdict `{"text", "severity"}`."""
    del settings
    warnings = health.judge(document, Thresholds(), now)
    return [warning.as_json() for warning in warnings], health.verdict(warnings)
