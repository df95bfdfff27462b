"""The audit: who did what, why, and what came of it. Append-only; ids and counts, never an address."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.masking import mask_text
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_log = logging.getLogger(__name__)
_INSERT = statement("insert_audit")
_SELECT = statement("select_audit")
_WORDS = statement("select_audit_words")

#: The role, the request and the session that the deeds of this thread come from.
_origin: ContextVar[tuple[str | None, str | None, UUID | None]] = ContextVar("audit_origin", default=(None, None, None))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """
    One deed. `count` is of the things it was done to, None where that says nothing.

    `account` is the operator's at the sign-in provider, which no two people share; None after a link, or of a command.
    """

    id: int
    at: datetime
    operator: str
    action: str
    target: str
    reason: str | None
    count: int | None
    result: str
    detail: dict[str, Any] | None
    role: str | None
    request_id: str | None
    account: str | None

    @property
    def shown_account(self) -> str:
        """The account as people see it: some providers' are addresses."""
        account = self.account or ""
        return mask_text(account) if "@" in account else account


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are looked at; None asks for any. `since` is within, `until` is beyond."""

    operator: str | None = None
    account: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@contextmanager
def caused_by(*, role: str | None, request_id: str | None, session: UUID | None = None) -> Iterator[None]:
    """Put a role, a request's id and the account behind a session on what this thread records inside the block."""
    token = _origin.set((role, request_id, session))
    try:
        yield
    finally:
        _origin.reset(token)


def provider_target(provider: str, credential: str) -> str:
    """An account of a provider, as what a deed was done to."""
    return f"provider {provider}:{credential}"


def queue_target(queue: str) -> str:
    """A queue, as what a deed was done to."""
    return f"queue {queue}"


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
    session: UUID | None = None,
    account: str | None = None,
) -> None:
    """
    Write a deed down in its own transaction, and one line of the log; addresses in the reason are masked.

    The account is that of the session, of this thread's or the one given, unless it is given itself. No log has it.
    """
    role, request_id, of_thread = _origin.get()
    reason = mask_text(reason) if reason else reason
    facts = {"operator": operator, "action": action, "target": target, "reason": reason, "count": count}
    facts |= {"result": result, "role": role, "request_id": request_id}
    who = {"session": session or of_thread, "account": account}
    connection.execute(_INSERT, {**facts, **who, "detail": None if detail is None else Jsonb(dict(detail))})
    _log.info("audit", extra=facts)


def newest(
    connection: Connection, *, limit: int, before: int | None = None, only: AuditFilter = AuditFilter()
) -> list[AuditEntry]:
    """Entries that fit, newest first; `before` is the id of the last one of the page before."""
    asked: dict[str, Any] = {"operator": only.operator, "account": only.account, "action": only.action}
    asked |= {"since": only.since, "until": only.until}
    return [AuditEntry(*row) for row in connection.execute(_SELECT, {**asked, "limit": limit, "before": before})]


def known_words(connection: Connection) -> tuple[list[str], list[str]]:
    """Give the operators and the actions of the newest entries, each in order."""
    rows = connection.execute(_WORDS).fetchall()
    return sorted({str(row[0]) for row in rows}), sorted({str(row[1]) for row in rows})
