"""The audit: who did what, why, and what came of it. Append-only; ids and counts, never an address."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_log = logging.getLogger(__name__)
_INSERT = statement("insert_audit")
_SELECT = statement("select_audit")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One deed. `count` is of the things it was done to, None where that says nothing."""

    id: int
    at: datetime
    operator: str
    action: str
    target: str
    reason: str | None
    count: int | None
    result: str
    detail: dict[str, Any] | None


def record(
    connection: Connection,
    *,
    operator: str,
    action: str,
    target: str,
    result: str,
    reason: str | None = None,
    count: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write a deed down in its own transaction, and one line of the log."""
    facts = {"operator": operator, "action": action, "target": target, "reason": reason, "count": count}
    connection.execute(_INSERT, {**facts, "result": result, "detail": None if detail is None else Jsonb(dict(detail))})
    _log.info("audit", extra={**facts, "result": result})


def newest(connection: Connection, *, limit: int, before: int | None = None) -> list[AuditEntry]:
    """Entries, newest first; `before` is the id of the last one of the page before."""
    return [AuditEntry(*row) for row in connection.execute(_SELECT, {"limit": limit, "before": before})]
