"""Events and findings as their tenants hand them in; what is told of them is in `shared.ledger.notifications`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.domain.digests import Severity
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SHARE = statement("share_tenant_events")
_WAIT = statement("wait_for_events")
_STORE = statement("store_events")
_PUT = statement("put_findings")
_SHARE_FINDINGS = statement("share_tenant_findings")
_LOCK_FINDINGS = statement("lock_tenant_findings")
_END_OTHERS = statement("end_other_findings")
_SELECT = statement("select_finding")
_SELECT_PAGE = statement("select_findings")
_DELETE = statement("delete_finding")
_ORDER = [severity.value for severity in Severity]


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happened. `details` is a JSON object; `finding` the key of what it belongs to."""

    dedup_key: str
    kind: str
    subject: str
    severity: Severity
    details: dict[str, Any] | None = None
    finding: str | None = None


@dataclass(frozen=True, slots=True)
class NewFinding:
    """Something that is so (`active`) or not; `dedup_key` is what of it is told once."""

    key: str
    dedup_key: str
    kind: str
    subject: str
    severity: Severity
    active: bool = True
    source: str = ""
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding as the ledger has it; `changed_at` is when there was last something new about it."""

    key: str
    source: str
    dedup_key: str
    kind: str
    subject: str
    severity: str
    details: dict[str, Any] | None
    active: bool
    created_at: datetime
    changed_at: datetime
    inactive_at: datetime | None


def store_events(connection: Connection, tenant_id: int, events: Sequence[NewEvent]) -> dict[str, str]:
    """
    Store events whose dedup keys differ, inside a transaction.

    Returns: by dedup key `new`, `raised` for one known as less severe, or `known`.
    """
    connection.execute(_SHARE, {"tenant_id": tenant_id})
    rows = connection.execute(
        _STORE,
        {
            "tenant_id": tenant_id,
            "dedup_keys": [event.dedup_key for event in events],
            "kinds": [event.kind for event in events],
            "subjects": [event.subject for event in events],
            "given_severities": [event.severity.value for event in events],
            "details": [_json(event.details) for event in events],
            "finding_keys": [event.finding for event in events],
            "severities": _ORDER,
        },
    )
    changed = {key: "new" if is_new else "raised" for key, is_new in rows}
    return {event.dedup_key: changed.get(event.dedup_key, "known") for event in events}


def wait_for_events(connection: Connection, tenant_id: int) -> None:
    """Have every event that is being handed in in sight, and others wait until the transaction ends."""
    connection.execute(_WAIT, {"tenant_id": tenant_id})


def put_findings(connection: Connection, tenant_id: int, findings: Sequence[NewFinding]) -> int:
    """Make findings, whose keys differ, what they are now, inside a transaction; how many were not so already."""
    connection.execute(_SHARE_FINDINGS, {"tenant_id": tenant_id})
    return connection.execute(
        _PUT,
        {
            "tenant_id": tenant_id,
            "keys": [finding.key for finding in findings],
            "sources": [finding.source for finding in findings],
            "dedup_keys": [finding.dedup_key for finding in findings],
            "kinds": [finding.kind for finding in findings],
            "subjects": [finding.subject for finding in findings],
            "given_severities": [finding.severity.value for finding in findings],
            "details": [_json(finding.details) for finding in findings],
            "actives": [finding.active for finding in findings],
            "severities": _ORDER,
        },
    ).rowcount


def lock_findings(connection: Connection, tenant_id: int) -> None:
    """
    Wait until nobody else puts findings, and have others wait until the transaction ends.

    Before anything else of a transaction that replaces those of a source.
    """
    connection.execute(_LOCK_FINDINGS, {"tenant_id": tenant_id})


def end_others(connection: Connection, tenant_id: int, *, source: str, named: Sequence[str]) -> int:
    """Make the active findings of a source inactive that it does not name; how many there were."""
    return connection.execute(_END_OTHERS, {"tenant_id": tenant_id, "source": source, "keys": list(named)}).rowcount


def find_finding(connection: Connection, tenant_id: int, key: str) -> Finding | None:
    """One finding of a tenant."""
    row = connection.execute(_SELECT, {"tenant_id": tenant_id, "key": key}).fetchone()
    return None if row is None else Finding(*row)


def list_findings(
    connection: Connection, tenant_id: int, *, after: str, limit: int, source: str | None, active: bool | None
) -> list[Finding]:
    """Findings of a tenant by key, those after a key."""
    parameters = {"tenant_id": tenant_id, "after": after, "limit": limit, "source": source, "active": active}
    return [Finding(*row) for row in connection.execute(_SELECT_PAGE, parameters)]


def delete_finding(connection: Connection, tenant_id: int, key: str) -> Finding | None:
    """Take a finding back; as it was, None when there was none."""
    row = connection.execute(_DELETE, {"tenant_id": tenant_id, "key": key}).fetchone()
    return None if row is None else Finding(*row)


def _json(details: dict[str, Any] | None) -> str | None:
    return None if details is None else json.dumps(details, default=float)
