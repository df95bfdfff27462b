"""`/admin/monitoring/failures`: what failed, grouped by cause, listed, and what is tried again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from flask import Response, request, url_for
from werkzeug.datastructures import MultiDict

from admin.extensions import services
from admin.monitoring import failure_groups
from admin.monitoring.access import reads
from admin.monitoring.csv_export import MAX_ROWS, Cell, csv_response
from admin.monitoring.failure_filter import as_args, cursor, read_cursor, read_filter
from admin.monitoring.failure_form import filter_form
from admin.monitoring.failure_groups import GROUPINGS, KINDS
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import Panel, View, add_page
from shared.domain.ids import delivery_id
from shared.domain.requeue import USUAL, FailureFilter
from shared.domain.states import DeliveryStatus
from shared.ledger import failed_jobs, failures
from shared.ledger.failures import Line

#: Failures of one page of a list.
PAGE_SIZE = 50
#: Rows of the parts of the first page.
_NEWEST, _JOBS = 10, 10
#: Failures read at once for a file.
_CSV_PAGE = 1_000


def _without_frame(args: MultiDict[str, str]) -> FailureFilter:
    return read_filter(MultiDict([item for item in args.items(multi=True) if item[0] not in {"by", "before", "id"}]))


def _by(args: MultiDict[str, str]) -> str:
    by = args.get("by", "error")
    return by if by in GROUPINGS else "error"


def _groups(view: View) -> Mapping[str, object]:
    """Everything by error is in the snapshot already, for everybody who looks at it."""
    asked, by = _without_frame(view.args), _by(view.args)
    if asked == FailureFilter() and by == "error":
        rows = view.data("failures").get("by_error", {"groups": [], "count": 0, "deliveries": 0})
    else:
        with services().reading.transaction() as connection:
            rows = failure_groups.group_rows(connection, asked, by=by)
    return {"rows": rows, "by": by, "filter_args": as_args(asked), "is_filtered": asked != FailureFilter()}


def _newest(statuses: frozenset[DeliveryStatus]) -> Callable[[View], Mapping[str, object]]:
    """The newest of these states under the page's filter, and the filter for what is done with them."""

    def context(view: View) -> Mapping[str, object]:
        asked = _without_frame(view.args)
        meant = statuses if asked.statuses == USUAL else asked.statuses & statuses  # USUAL: no state was chosen
        if not meant:
            return {"lines": [], "is_filtered": True}
        of_these = replace(asked, statuses=meant)
        with services().reading.transaction() as connection:
            found = failures.page(connection, of_these, discarded=False, before=None, limit=_NEWEST)
            causes = failures.causes(connection, sorted({line.signature for line in found}))
        return {
            "lines": found,
            "causes": causes,
            "filter_args": as_args(of_these),
            "is_filtered": asked != FailureFilter(),
            "are_all": len(found) < _NEWEST,
        }

    return context


def _jobs(view: View) -> Mapping[str, object]:
    del view
    with services().reading.transaction() as connection:
        return {"jobs": failed_jobs.newest(connection, limit=_JOBS)}


add_page(
    "failures",
    Panel("failures", "Open now", ("failures",)),
    Panel("groups", "Groups", ("failures",), _groups),
    Panel("unsure", "Unsure", ("failures",), _newest(frozenset({DeliveryStatus.UNSURE}))),
    Panel("newest", "Newest failures", ("failures",), _newest(USUAL)),
    Panel("failed_jobs", "Failed jobs", context=_jobs),
)
add_page("failure_list", tab="Failures")
add_page("retries", tab="Failures")


@pages.app_context_processor
def _words() -> dict[str, object]:
    return {"kind_words": KINDS, "groupings": GROUPINGS, "delivery_id": delivery_id, "filter_url": filter_url}


def filter_url(endpoint: str, args: list[tuple[str, str]], **more: str) -> str:
    """The address of a page under a filter; `more` replaces, adds, takes away where it is empty, and fills its path."""
    by_name: dict[str, Any] = MultiDict([item for item in args if item[0] not in more]).to_dict(flat=False)
    by_name |= {name: value for name, value in more.items() if value}
    return url_for(f"monitoring.{endpoint}", **by_name)


@pages.get("/failures")
@reads
def failures_page() -> str:
    """The page."""
    asked = _without_frame(request.args)  # a filter that says nothing is told before anything is read
    return page("failures", "monitoring/failures.html", form=filter_form(asked, request.args, kept=("by",)))


def list_context(asked: FailureFilter, *, discarded: bool, address: Callable[[str], str]) -> dict[str, Any]:
    """What the template of a list needs. `address` gives that of the page behind a cursor; of the first without one."""
    before = read_cursor(request.args.get("before"))
    with services().reading.transaction() as connection:
        asked = failures.named(connection, asked)
        found = failures.page(connection, asked, discarded=discarded, before=before, limit=PAGE_SIZE + 1)
        causes = failures.causes(connection, sorted({line.signature for line in found}))
    lines = found[:PAGE_SIZE]
    last = lines[-1] if len(found) > PAGE_SIZE else None
    return {
        "asked": asked,
        "lines": lines,
        "causes": causes,
        "newest": address("") if before else None,
        "older": address(cursor(last.failed_at, last.send_id, last.row_no)) if last else None,
        "filter_args": as_args(asked),
        "words": asked.words(),
        "is_unsure": asked.statuses == frozenset({DeliveryStatus.UNSURE}),
        "is_discarded": discarded,
        "kept": timedelta(days=services().settings.retention_days),
    }


@pages.get("/failures/list")
@reads
def failure_list() -> str:
    """Failures one by one, the newest first."""
    asked = _without_frame(request.args)
    discarded = request.args.get("discarded") == "1"

    def address(before: str) -> str:
        return filter_url("failure_list", as_args(asked), discarded="1" if discarded else "", before=before)

    context = list_context(asked, discarded=discarded, address=address)
    form = filter_form(context["asked"], request.args, kept=("discarded",))
    return page("failure_list", "monitoring/failure_list.html", form=form, **context)


@pages.get("/failures/retrying")
@reads
def retry_list() -> str:
    """What the machine tries again by itself, those due first."""
    with services().reading.transaction() as connection:
        found = failures.retries(connection, limit=PAGE_SIZE)
    return page("retries", "monitoring/retries.html", found=found, is_full=len(found) == PAGE_SIZE)


@pages.get("/failures.csv")
@reads
def failures_csv() -> Response:
    """The filter's failures as a file."""
    asked = _without_frame(request.args)
    header = ("delivery", "to", "tenant", "send", "channel", "state", "provider", "code", "error", "attempts", "since")
    discarded = request.args.get("discarded") == "1"
    return csv_response("failures", header, (_cells(line) for line in _all(asked, discarded=discarded)))


def _all(asked: FailureFilter, *, discarded: bool) -> Iterator[Line]:
    before = None
    for _ in range(MAX_ROWS // _CSV_PAGE + 1):
        with services().reading.transaction() as connection:
            found = failures.page(connection, asked, discarded=discarded, before=before, limit=_CSV_PAGE)
        yield from found
        if len(found) < _CSV_PAGE:
            return
        before = (found[-1].failed_at, found[-1].send_id, found[-1].row_no)


def _cells(line: Line) -> tuple[Cell, ...]:
    return (
        delivery_id(line.send_id, line.row_no), line.to, line.tenant, line.send_name, line.channel, KINDS[line.status],
        line.provider, line.code, line.error, line.attempts, line.failed_at,
    )  # fmt: skip
