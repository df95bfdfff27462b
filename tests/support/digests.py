"""Digest channels over a scripted endpoint, and what the ledger says of their notifications."""

from dataclasses import dataclass
from typing import Any

from shared.domain.digest_channels import read_setup
from shared.domain.digests import ChannelType, Severity
from shared.ledger import digest_channels, events, notifications
from shared.ledger.db import Ledger
from shared.ledger.digest_channels import Wishes
from shared.ledger.events import NewEvent, NewFinding
from tests.support.factories import make_tenant

SECRET = "whsec_" + "A" * 43 + "="
LOOPBACK = {"digest_plain_http_hosts": "127.0.0.1 localhost", "digest_private_hosts": "127.0.0.1 localhost"}


@dataclass(frozen=True)
class Row:
    """A notification as the ledger has it; `due_in` in seconds."""

    key: str
    status: str
    attempts: int
    due_in: float | None
    error: str | None
    batch: Any
    sent: bool


def make_channel(
    ledger: Ledger,
    url: str | None = None,
    *,
    name: str = "ops",
    tenant: str = "acme",
    type_: ChannelType = ChannelType.WEBHOOK,
    tells_existing: bool = False,
    setup: dict[str, Any] | None = None,
    **wishes: Any,
) -> int:
    """A channel with its baseline taken, as `tidings digest channel add` leaves it."""
    given: dict[str, Any] = {"url": url, "signing_secret": SECRET} if setup is None else setup
    hosts = ("127.0.0.1", "localhost")
    with ledger.transaction() as connection:
        tenant_id, _ = make_tenant(connection, tenant)
        made = digest_channels.create(
            connection,
            tenant_id=tenant_id,
            name=name,
            type_=type_,
            setup=read_setup(type_, given, plain_http=hosts, private=hosts),
            wishes=Wishes(**wishes),
            tells_existing=tells_existing,
        )
        assert made is not None
        if not tells_existing:
            notifications.detect(connection, made, baseline=True)
    return made


def event(key: str, *, severity: Severity = Severity.HIGH, kind: str = "update", **more: Any) -> NewEvent:
    return NewEvent(key, kind, more.pop("subject", f"about {key}"), severity, **more)


def finding(key: str, *, severity: Severity = Severity.HIGH, kind: str = "cve", **more: Any) -> NewFinding:
    subject = more.pop("subject", f"about {key}")
    return NewFinding(key, more.pop("dedup_key", key), kind, subject, severity, **more)


def post(ledger: Ledger, *new: NewEvent | str, tenant: str = "acme") -> None:
    made = [event(one) if isinstance(one, str) else one for one in new]
    with ledger.transaction() as connection:
        events.store_events(connection, make_tenant(connection, tenant)[0], made)


def put(ledger: Ledger, *new: NewFinding | str, tenant: str = "acme") -> None:
    made = [finding(one) if isinstance(one, str) else one for one in new]
    with ledger.transaction() as connection:
        events.put_findings(connection, make_tenant(connection, tenant)[0], made)


def rows(ledger: Ledger, *, channel: str = "ops") -> dict[str, Row]:
    with ledger.autocommit() as connection:
        found = connection.execute(
            "SELECT n.dedup_key, n.status, n.attempt_count, extract(epoch FROM n.next_attempt_at - now())::float8,"
            " n.last_error, n.dispatch_batch_id, n.sent_at IS NOT NULL"
            " FROM notification n JOIN digest_channel c ON c.id = n.channel_id WHERE c.name = %s ORDER BY n.id",
            [channel],
        ).fetchall()
    return {row[0]: Row(*row) for row in found}


def statuses(ledger: Ledger, *, channel: str = "ops") -> dict[str, str]:
    return {key: row.status for key, row in rows(ledger, channel=channel).items()}


def age(ledger: Ledger, interval: str) -> None:
    """Move every notification, message and wait into the past, as if so much time had gone by."""
    moments = {
        "notification": ("created_at", "owed_since", "next_attempt_at", "sent_at", "final_at"),
        "digest": ("created_at", "leased_until", "next_attempt_at", "ended_at"),
        "digest_channel": ("wait_until", "not_configured_at"),
    }
    with ledger.transaction() as connection:
        for table, columns in moments.items():
            moved = ", ".join(f"{column} = {column} - %(by)s::interval" for column in columns)
            connection.execute(f"UPDATE {table} SET {moved}", {"by": interval})  # type: ignore[arg-type]
