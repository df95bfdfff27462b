"""What a snapshot means: the warnings, worst first, and the one sentence that is read first."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.settings import Settings


def judge(
    document: Mapping[str, Any], settings: Settings, now: datetime
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """
    Give the warnings `{"rule", "severity", "text", "since", "panel"}` and the verdict `{"text", "severity"}`.

    Severities are `critical`, `warning` and `ok`.
    """
    del settings, now
    warnings = []
    if document["stores"]["postgres"]["status"] != "ok":
        warnings.append(_warning("PostgresUnreachable", "critical", document, "postgres", _POSTGRES_AWAY))
    if document["stores"]["redis"]["status"] != "ok":
        warnings.append(_warning("RedisUnreachable", "warning", document, "redis", _REDIS_AWAY))
    if warnings:
        return warnings, {"text": warnings[0]["text"], "severity": warnings[0]["severity"]}
    return [], {"text": "Sending normally.", "severity": "ok"}


_POSTGRES_AWAY = "Postgres does not answer: nothing is accepted or sent, and the figures below are the last ones seen."
_REDIS_AWAY = "Redis does not answer: sending continues without shared caps and circuits."


def _warning(rule: str, severity: str, document: Mapping[str, Any], store: str, text: str) -> dict[str, Any]:
    since = document["stores"][store]["since"]
    return {"rule": rule, "severity": severity, "text": text, "since": since, "panel": "foundations"}
