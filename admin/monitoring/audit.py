"""`/admin/monitoring/audit`: who did what, why, and what came of it; filtered, page by page, and as a file."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from urllib.parse import urlencode

from flask import Response, request, url_for

from admin.extensions import services
from admin.monitoring.access import reads
from admin.monitoring.bad_filter import know_only
from admin.monitoring.csv_export import Cell, csv_response
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from shared.ledger import audit, failures
from shared.ledger.audit import AuditEntry, AuditFilter

#: Entries of one page, and of one look while a file is written.
PAGE_SIZE, _FILE_STEP = 50, 1_000
_LARGEST_ID = 2**63 - 1
_LONGEST_WORD = 200
_FIRST_YEAR, _LAST_YEAR = 2000, 2200
_OPERATION = re.compile(r"operation ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_GROUP = re.compile(r"failure group ([0-9a-f]{12})")
_SEND = re.compile(r"send ([0-9a-f-]{36})")
_DELIVERY = re.compile(r"delivery (\S+)")
_DIGEST_CHANNEL = re.compile(r"digest channel (.+)")
#: A queue, or an account of a provider: their panels are called "queues" and "providers".
_OF_SYSTEM = re.compile(r"(queue|provider) \S+")
_COLUMNS = ("when", "operator", "role", "action", "target", "count", "reason", "result", "request", "account", "filter")

add_page("audit", tab="System")


@dataclass(frozen=True, slots=True)
class Asked:
    """The filter as the address has it; what cannot be read is left out and named in `faults`."""

    operator: str
    account: str
    action: str
    first: date | None
    last: date | None
    faults: tuple[str, ...]

    @property
    def filter(self) -> AuditFilter:
        """The same for the ledger; `last` is within."""
        return AuditFilter(
            operator=self.operator or None,
            account=self.account or None,
            action=self.action or None,
            since=_midnight(self.first) if self.first else None,
            until=_midnight(self.last) + timedelta(days=1) if self.last else None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether every entry fits."""
        return self.filter == AuditFilter()

    def query(self, **more: str) -> str:
        """The query string of this filter, with what is added."""
        given = {
            "operator": self.operator, "account": self.account, "action": self.action, "from": self.first,
            "to": self.last, **more,
        }  # fmt: skip
        return urlencode({name: value for name, value in given.items() if value})


@pages.get("/audit")
@reads
def audit_page() -> str:
    """The page."""
    asked = _asked(request.args)
    with services().reading.transaction() as connection:
        found = audit.newest(connection, limit=PAGE_SIZE + 1, before=_before(), only=asked.filter)
        operators, actions = audit.known_words(connection)
        groups = {match[1] for entry in found if (match := _GROUP.fullmatch(entry.target))}
        titles = {group: cause.title for group, cause in failures.causes(connection, sorted(groups)).items()}
    return page(
        "audit",
        "monitoring/audit.html",
        asked=asked,
        entries=found[:PAGE_SIZE],
        older=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        is_first=_before() is None,
        operators=operators,
        actions=actions,
        place_of=partial(_place_of, titles=titles),
    )


@pages.get("/audit.csv")
@reads
def audit_file() -> Response:
    """The entries that fit the filter, newest first, as a file."""
    asked = _asked(request.args)
    return csv_response(f"audit-{datetime.now(UTC):%Y-%m-%d}", _COLUMNS, map(_cells, _all(asked.filter)))


def _all(only: AuditFilter) -> Iterator[AuditEntry]:
    """Read step by step: a file that somebody takes slowly must not keep a snapshot of the ledger open."""
    before: int | None = None
    while True:
        with services().reading.transaction() as connection:
            found = audit.newest(connection, limit=_FILE_STEP, before=before, only=only)
        yield from found
        if len(found) < _FILE_STEP:
            return
        before = found[-1].id


def _cells(entry: AuditEntry) -> tuple[Cell, ...]:
    return (
        entry.at, entry.operator, entry.role, entry.action, entry.target, entry.count, entry.reason, entry.result,
        entry.request_id, entry.shown_account or None, _filter_words(entry),
    )  # fmt: skip


def _asked(args: Mapping[str, str]) -> Asked:
    know_only("operator", "account", "action", "from", "to", "before")
    first, last = _day(args.get("from", "")), _day(args.get("to", ""))
    faults = [
        f"{name} is not a day: write it as 2026-03-28"
        for name, found in (("from", first), ("to", last))
        if found is None and args.get(name)
    ]
    return Asked(
        operator=_word(args.get("operator", "")), account=_word(args.get("account", "")),
        action=_word(args.get("action", "")),
        first=first, last=last, faults=tuple(faults),
    )  # fmt: skip


def _word(given: str) -> str:
    return given.replace("\0", "").strip()[:_LONGEST_WORD]


def _day(given: str) -> date | None:
    try:
        found = date.fromisoformat(given)
    except ValueError:
        return None
    return found if _FIRST_YEAR <= found.year <= _LAST_YEAR else None


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _before() -> int | None:
    found = request.args.get("before", type=int)
    return None if found is None else min(max(found, 0), _LARGEST_ID)


def _filter_words(entry: AuditEntry) -> str | None:
    """Which things an operation was planned for, in the words of its preview."""
    words: str | None = ((entry.detail or {}).get("filter") or {}).get("words")
    return words


def _place_of(entry: AuditEntry, *, titles: Mapping[str, str]) -> tuple[str, str | None]:
    """What a deed was done to, in words, and the address of its page; the ids are in the file and in the address."""
    target = entry.target
    if found := _OPERATION.fullmatch(target):
        words = _filter_words(entry) or f"operation {found[1][:8]}"
        return words, url_for("monitoring.operation_page", operation_id=found[1])
    if found := _GROUP.fullmatch(target):
        return f"failures “{titles[found[1]]}”", url_for("monitoring.failure_group", signature=found[1])
    if found := _SEND.fullmatch(target):
        return target, url_for("monitoring.send_detail", send_id=found[1])
    if found := _DELIVERY.fullmatch(target):
        return target, url_for("monitoring.failure_item", delivery=found[1])
    if found := _DIGEST_CHANNEL.fullmatch(target):
        return target, url_for("monitoring.digest_history", channel=found[1])
    if found := _OF_SYSTEM.fullmatch(target):
        return target, f"{url_for('monitoring.system')}#{found[1]}s"
    return target, None
