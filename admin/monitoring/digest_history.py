"""`/admin/monitoring/digests/history`: what was told in digests or is to be; filtered, one by one, as a file."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode
from uuid import UUID

from flask import Response, abort, request
from werkzeug.datastructures import MultiDict

from admin.extensions import services
from admin.monitoring.access import reads
from admin.monitoring.bad_filter import know_only, wrong_filter
from admin.monitoring.csv_export import MAX_ROWS, Cell, csv_response
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.digests import NotificationStatus
from shared.domain.masking import mask_text
from shared.ledger import digest_channels, notifications
from shared.ledger.db import Connection
from shared.ledger.notifications import NEWEST, Told

#: Notifications of one page, and of one look while a file is written.
PAGE_SIZE, _FILE_STEP = 50, 1_000
_LONGEST_WORD = 200
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_COLUMNS = (
    "id", "what", "kind", "severity", "channel", "tenant", "state", "attempts", "found", "told", "next",
    "dispatch batch", "finding", "last error", "discarded",
)  # fmt: skip
#: Word and shape of each state.
STATES = {
    NotificationStatus.PENDING: ("pending", "busy"),
    NotificationStatus.RETRYING: ("retrying", "warn"),
    NotificationStatus.SENT: ("sent", "ok"),
    NotificationStatus.SUPPRESSED: ("suppressed", "off"),
    NotificationStatus.DEAD_LETTERED: ("dead-lettered", "bad"),
}

add_page("digest_history", tab="Overview")


@dataclass(frozen=True, slots=True)
class Asked:
    """
    The filter as the address has it; `of` is a notification, and what fits then is of its `finding`.

    A finding's key may be an address, which no URL is to have.
    """

    channel: str = ""
    kind: str = ""
    tenant: str = ""
    status: NotificationStatus | None = None
    batch: UUID | None = None
    of: int | None = None
    finding: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether everything fits."""
        return self == Asked()

    @property
    def takes_dead_letters(self) -> bool:
        """Whether dead letters are among what fits."""
        return self.status in {None, NotificationStatus.DEAD_LETTERED} and not (self.batch or self.finding)

    def query(self, **more: str) -> str:
        """The query string of this filter, with what is added."""
        given = {
            "channel": self.channel, "kind": self.kind, "tenant": self.tenant, "status": self.status,
            "batch": self.batch, "of": self.of, **more,
        }  # fmt: skip
        return urlencode({name: value for name, value in given.items() if value})

    def dead_letters(self) -> str:
        """The same filter of a requeue, as a query string."""
        given = {"channel": self.channel, "kind": self.kind, "tenant": self.tenant}
        return urlencode({name: value for name, value in given.items() if value})

    def read(self, connection: Connection, *, before: int, limit: int) -> list[Told]:
        """What fits, newest first."""
        return notifications.history(
            connection,
            limit=limit,
            before=before,
            channel=self.channel or None,
            kind=self.kind or None,
            status=self.status,
            tenant=self.tenant or None,
            batch=self.batch,
            finding=self.finding or None,
        )


@pages.get("/digests/history")
@reads
def digest_history() -> str:
    """The page."""
    asked, before = _asked(), _before()
    with services().reading.transaction() as connection:
        channels = digest_channels.every(connection)
        found = asked.read(connection, before=before, limit=PAGE_SIZE + 1)
    return page(
        "digest_history",
        "monitoring/digest_history.html",
        asked=asked,
        channels=sorted({one.name for one in channels} | ({asked.channel} if asked.channel else set())),
        tenants=sorted({one.tenant for one in channels} | ({asked.tenant} if asked.tenant else set())),
        found=found[:PAGE_SIZE],
        older=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        is_first=before == NEWEST,
        dead=sum(one.dead_lettered for one in channels),
        states=STATES,
        masked=mask_text,
    )


@pages.get("/digests/history/<int:notification_id>")
@reads
def digest_item(notification_id: int) -> str:
    """One notification, with what stands behind it."""
    with services().reading.transaction() as connection:
        found = notifications.find(connection, notification_id) if notification_id < NEWEST else None
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return page(
        "digest_history",
        "monitoring/digest_item.html",
        story=found,
        one=found.told,
        states=STATES,
        masked=mask_text,
    )


@pages.get("/digests/history.csv")
@reads
def digest_history_file() -> Response:
    """What fits the filter, newest first, as a file."""
    return csv_response("digest-history", _COLUMNS, map(_cells, _all(_asked())))


def read_dead_letters(args: MultiDict[str, str]) -> DeadLetterFilter:
    """The dead letters that an address or a form means; ids that are none stand for nothing."""
    ids = [int(text) for text in args.getlist("id") if _DIGITS.fullmatch(text)][:_FILE_STEP]
    if args.getlist("id"):
        return DeadLetterFilter(ids=tuple(dict.fromkeys(ids)) or (0,))
    channel, tenant, kind = (_clean(args.get(name, "")) or None for name in ("channel", "tenant", "kind"))
    return DeadLetterFilter(channel=channel, tenant=tenant, kind=kind)


def _all(asked: Asked) -> Iterator[Told]:
    """Read step by step: a file that somebody takes slowly must not keep a snapshot of the ledger open."""
    before = NEWEST
    for _ in range(MAX_ROWS // _FILE_STEP + 1):
        with services().reading.transaction() as connection:
            found = asked.read(connection, before=before, limit=_FILE_STEP)
        yield from found
        if len(found) < _FILE_STEP:
            return
        before = found[-1].id


def _cells(one: Told) -> tuple[Cell, ...]:
    return (
        one.id, one.subject, one.kind, one.severity, one.channel, one.tenant, one.status, one.attempt_count,
        one.created_at, one.sent_at, one.next_attempt_at,
        str(one.dispatch_batch_id) if one.dispatch_batch_id else None, one.finding, one.last_error,
        one.discarded_at,
    )  # fmt: skip


def _asked() -> Asked:
    know_only("channel", "kind", "tenant", "status", "of", "batch", "before")
    words = {name: _clean(request.args.get(name, "")) for name in ("channel", "kind", "tenant")}
    status = request.args.get("status", "")
    if status and status not in list(NotificationStatus):
        raise wrong_filter("status", f"is one of {', '.join(NotificationStatus)}")
    batch = request.args.get("batch", "")
    try:
        message = UUID(batch) if batch else None
    except ValueError:
        raise wrong_filter("batch", "is the id of a message") from None
    of, finding = _of()
    return Asked(**words, status=NotificationStatus(status) if status else None, batch=message, of=of, finding=finding)


def _of() -> tuple[int | None, str]:
    given = request.args.get("of", "")
    if not given:
        return None, ""
    found = None
    if _DIGITS.fullmatch(given) and int(given) < NEWEST:
        with services().reading.transaction() as connection:
            found = notifications.find(connection, int(given))
    if found is None or not found.told.finding:
        raise wrong_filter("of", "is the number of a notification that is kept and has a finding")
    return int(given), found.told.finding


def _clean(given: str) -> str:
    return given.replace("\0", "").strip()[:_LONGEST_WORD]


def _before() -> int:
    text = request.args.get("before")
    if not text:
        return NEWEST
    if not _DIGITS.fullmatch(text):
        raise wrong_filter("before", "comes from the page before this one")
    return min(int(text), NEWEST)
