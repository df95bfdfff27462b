"""Groups of open failures, and the section of the snapshot that counts them. Plain values, as JSON takes them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from admin.monitoring.snapshot import Data, Section, Sources, add_section
from shared.domain.requeue import REQUEUEABLE, FailureFilter
from shared.ledger import failure_counts, failures, operation_results
from shared.ledger.db import Connection
from shared.ledger.failures import Cause, Group

#: By what failures can be grouped, and how a person says it.
GROUPINGS = {
    "error": "Error",
    "tenant": "Tenant",
    "provider": "Provider",
    "channel": "Channel",
    "kind": "Kind",
    "send": "Send",
}
#: Most groups of the table; the rest is counted.
MOST_GROUPS = 50
_NEW_FOR = timedelta(hours=1)
_HOURS = 24

KINDS = {status.value: status.words for status in REQUEUEABLE}
CHANNELS = {"email": "E-mail", "sms": "SMS"}


def group_rows(connection: Connection, asked: FailureFilter, *, by: str) -> dict[str, Any]:
    """Give `{"groups": [row], "count": of groups, "deliveries": of those shown}`, the largest first."""
    found = failures.groups(connection, asked, by=by, limit=MOST_GROUPS)
    causes = failures.causes(connection, [group.key for group in found]) if by == "error" else {}
    requeues = last_requeues(connection, causes)
    rows = [_row(group, by, causes.get(group.key), requeues.get(group.key)) for group in found]
    return {
        "groups": rows,
        "count": found[0].groups if found else 0,
        "deliveries": sum(group.count for group in found),
    }


def _row(group: Group, by: str, cause: Cause | None, requeue: dict[str, Any] | None) -> dict[str, Any]:
    title = {
        "error": cause.title if cause else group.key,
        "tenant": group.tenant,
        "send": group.send_name or f"{group.key[:13]}…",
        "provider": group.key or "no provider called",
        "channel": CHANNELS.get(group.key, group.key),
        "kind": KINDS.get(group.key, group.key),
    }.get(by, group.key)
    first_seen = (cause.first_seen_at if cause else None) or group.oldest
    row: dict[str, Any] = {
        "key": group.key,
        "title": title,
        "args": _args(group.key, by, title),
        "kind": _kind(group.statuses, cause),
        "is_unsure": group.statuses == ["unsure"],
        "channels": group.channels,
        "provider": cause.provider if cause else None,
        "count": group.count,
        "tenants": group.tenants,
        "tenant": group.tenant,
        "hours": [(group.hours or {}).get(str(age), 0) for age in reversed(range(_HOURS))] if by != "send" else None,
        "is_new": cause is not None and datetime.now(UTC) - first_seen < _NEW_FOR,
        "first": first_seen.isoformat(),
        "oldest": group.oldest.isoformat(),
        "last": group.newest.isoformat(),
        "requeue": requeue,
        "note": None,
    }
    if cause is not None and cause.note is not None and cause.note_at is not None:
        row["note"] = {"text": cause.note, "author": cause.note_author, "at": cause.note_at.isoformat()}
    return row


def last_requeues(connection: Connection, causes: Mapping[str, Cause]) -> dict[str, dict[str, Any]]:
    """The newest requeue that took some of each cause, as the macro `came_of` tells of it."""
    sent = operation_results.sent(connection, {cause.operation for cause in causes.values() if cause.operation})
    return {key: _requeue(cause, sent) for key, cause in causes.items() if cause.operation}


def _requeue(cause: Cause, sent: Mapping[UUID, int | None]) -> dict[str, Any]:
    return {
        "id": str(cause.operation),
        "operator": cause.operator,
        "at": cause.requeued_at.isoformat() if cause.requeued_at else None,
        "status": cause.operation_status,
        "total": cause.total,
        "done": cause.done,
        "sent": sent.get(cause.operation) if cause.operation else None,
        "again": cause.again,
        "again_more": cause.again_more,
    }


def _kind(statuses: list[str], cause: Cause | None) -> str:
    if cause is not None and cause.outcome == "refused":
        return "refused at acceptance"
    return ", ".join(KINDS[status] for status in sorted(statuses))


def _args(key: str, by: str, title: str) -> dict[str, str]:
    """The filter that a group stands for."""
    name = {"error": "group", "kind": "status"}.get(by, by)
    return {name: title if by == "tenant" else key} if key else {}


def sample(sources: Sources) -> Data:
    """Counts of all kinds, and the groups by error."""
    with sources.connection() as connection:
        counted = failure_counts.summary(connection)
        rows = group_rows(connection, FailureFilter(), by="error")
    return {
        "count": counted.dead_lettered + counted.failed + counted.unsure,
        "dead_lettered": counted.dead_lettered,
        "failed": counted.failed,
        "unsure": counted.unsure,
        "proving": counted.proving,
        "discarded": counted.discarded,
        "retrying": counted.retrying,
        "next_retry_at": counted.next_retry_at.isoformat() if counted.next_retry_at else None,
        "newest_at": counted.newest_at.isoformat() if counted.newest_at else None,
        "groups": rows["count"],
        "by_error": rows,
    }


add_section(Section("failures", "postgres", sample))
