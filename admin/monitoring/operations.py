"""`/admin/monitoring/operations`: bulk operations, how far they are, what came of them; undo and stop."""

from collections.abc import Mapping
from http import HTTPStatus
from uuid import UUID

from flask import abort, flash, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.bad_filter import know_only, wrong_filter
from admin.monitoring.failures import filter_url
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.reason import given_reason
from shared.domain.requeue import OperationKind, seconds_for
from shared.ledger import operation_results, operations
from shared.ledger.operation_results import LARGE, Outcome
from shared.ledger.operations import Operation

PAGE_SIZE = 50
#: Seconds after its time at which an operation that nobody works on is one that waits for a worker.
_LATE_S = 15.0
_FAILURES = frozenset({"failed", "dead_lettered", "unsure"})
#: What an operation's filter keeps, by its names in addresses; its cause is in the path of the group's page.
_KEPT = {"tenant": "tenant", "channel": "channel", "provider": "provider", "send": "send_id", "who": "recipient",
         "since": "since"}  # fmt: skip
_STATES = {
    "scheduled": ("begins soon", "busy"),
    "running": ("under way", "busy"),
    "stopped": ("stopped", "warn"),
    "undone": ("undone", "off"),
    "done": ("done", "ok"),
}


def _is_open(view: View) -> bool:
    with services().reading.transaction() as connection:
        found = operations.find(connection, UUID(view.args["id"]))
    return found is not None and found.status in {"scheduled", "running"}


def _operation(view: View) -> Mapping[str, object]:
    try:
        id_ = UUID(view.args["id"])
    except (KeyError, ValueError):
        abort(HTTPStatus.NOT_FOUND)
    with services().reading.transaction() as connection:
        found = operations.find(connection, id_)
        if found is None:
            abort(HTTPStatus.NOT_FOUND)
        is_counted = found.done <= LARGE or "count" in view.args or found.emptied_at is not None
        read = operation_results.outcome if is_counted else operation_results.counted
        outcome = read(connection, id_) if found.done else Outcome({})
        skips = operation_results.skips(connection, id_) if found.skipped else {}
    word, kind = _STATES[found.status]
    return {
        "operation": found,
        "group_href": _group_link(found),
        "state_word": word,
        "state_kind": kind,
        "why": _why(found, word),
        "waits_s": _waits_s(found),
        "can_undo": found.status == "scheduled",
        "percent": _percent(found),
        "per_s": _per_s(found),
        "left_s": seconds_for(found.left, 0, kind=found.kind),
        "outcome": _became(found, outcome, is_past=is_counted and outcome.noted_at is not None),
        "noted_at": outcome.noted_at,
        "is_counted": is_counted,
        "skips": {why.words: count for why, count in skips.items()},
        "done_words": found.kind.done,
    }


def _waits_s(found: Operation) -> float | None:
    """Seconds for which it should have gone on and nobody is at it; None where that is no news."""
    if found.status not in {"scheduled", "running"}:
        return None
    late_s = (found.read_at - found.run_at).total_seconds()
    return late_s if late_s > _LATE_S else None


def _why(found: Operation, word: str) -> str:
    """What is said behind the state: "stopped by kim", "stopped – most of it failed again"."""
    if not found.why:
        return ""
    return found.why.removeprefix(word) if found.why.startswith(f"{word} by ") else f" – {found.why}"


def _group_link(found: Operation) -> str | None:
    """The page of the group that it took from, under its filter."""
    kept = [(name, value) for name, field in _KEPT.items() if (value := found.filter.get(field))]
    signature = found.filter.get("signature")
    return filter_url("failure_group", kept, signature=signature) if signature else None


def _became(found: Operation, outcome: Outcome, *, is_past: bool) -> list[dict[str, object]]:
    """What has become of the items, what was sent first; what is a failure now leads to those rows."""
    parts = sorted(outcome.counts.items(), key=lambda part: (part[0] != "sent", -part[1]))
    return [
        {
            "count": count,
            "words": _became_words(found, word),
            "href": None if is_past else _became_link(found, word),
        }
        for word, count in parts
    ]


def _became_words(found: Operation, word: str) -> str:
    again = " again" if found.kind is OperationKind.REQUEUE and word in _FAILURES else ""
    return word.replace("_", "-") + again


def _became_link(found: Operation, word: str) -> str | None:
    if found.takes_notifications:
        return url_for("monitoring.digest_history", status=word) if word == "dead_lettered" else None
    if word == "discarded":
        return url_for("monitoring.failure_list", operation=str(found.id), status="any", discarded=1)
    return url_for("monitoring.failure_list", operation=str(found.id), status=word) if word in _FAILURES else None


def _percent(found: Operation) -> int:
    """Never 100 before it is over."""
    whole = 100 * (found.done + found.skipped) // found.total if found.total else 100
    return whole if found.status == "done" else min(whole, 99)


def _per_s(found: Operation) -> float | None:
    if found.status != "running" or found.started_at is None:
        return None
    took = (found.read_at - found.started_at).total_seconds()
    return (found.done + found.skipped) / took if took > 1 else None


add_page("operation", Panel("operation", "Operation", context=_operation), tab="Failures", is_busy=_is_open)
add_page("operations", tab="Failures")


@pages.get("/operations")
@reads
def operation_list() -> str:
    """Operations, newest first, page by page."""
    know_only("before")
    try:
        before = UUID(request.args["before"]) if request.args.get("before") else None
    except ValueError:
        raise wrong_filter("before", "comes from the page before this one") from None
    with services().reading.transaction() as connection:
        found = operations.newest(connection, limit=PAGE_SIZE + 1, before=before)
    return page(
        "operations",
        "monitoring/operations.html",
        found=found[:PAGE_SIZE],
        states=_STATES,
        older=found[PAGE_SIZE - 1].id if len(found) > PAGE_SIZE else None,
        is_first=before is None,
    )


@pages.get("/operations/<uuid:operation_id>")
@reads
def operation_page(operation_id: UUID) -> str:
    """One operation; its address stays good for as long as it is kept."""
    with services().reading.transaction() as connection:
        found = operations.find(connection, operation_id)
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return page("operation", "monitoring/operation.html", path={"id": str(operation_id)}, operation=found)


@pages.post("/operations/<uuid:operation_id>/undo")
@acts
def undo_operation(operation_id: UUID) -> AnyResponse:
    """Take it back before it begins."""
    with services().ledger.transaction() as connection:
        undone = operations.undo(connection, operation_id, operator=operator())
    if undone:
        flash("Undone: nothing was done.")
    else:
        flash("It is too late to undo: it has begun, or it is over. Stop leaves the rest as it was.", "error")
    return redirect(url_for("monitoring.operation_page", operation_id=operation_id), code=HTTPStatus.SEE_OTHER)


@pages.post("/operations/<uuid:operation_id>/stop")
@acts
def stop_operation(operation_id: UUID) -> AnyResponse:
    """Stop it: what is not done stays as it was."""
    reason = given_reason()
    why = f"stopped by {operator()}: {reason}" if reason else f"stopped by {operator()}"
    with services().ledger.transaction() as connection:
        stopped = operations.stop(connection, operation_id, operator=operator(), why=why)
    if stopped:
        flash("Stopped: the rest stays as it was.")
    else:
        flash("It is over already.", "error")
    return redirect(url_for("monitoring.operation_page", operation_id=operation_id), code=HTTPStatus.SEE_OTHER)
