"""`/admin/monitoring/failures/groups/<signature>`: one cause, its failures, and a note for others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flask import abort, flash, redirect, request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring import failure_groups
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.failure_filter import as_args, read_filter
from admin.monitoring.failures import filter_url, list_context
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from admin.monitoring.snapshot_cache import outdate
from shared.domain.requeue import REQUEUEABLE, USUAL, FailureFilter
from shared.domain.states import DeliveryStatus
from shared.ledger import failures
from shared.ledger.db import Connection

#: Characters of a note.
_LONGEST_NOTE = 500
#: What is acted on apart from each other, and the word on the buttons.
_PARTS = ((USUAL, ""), (frozenset({DeliveryStatus.UNSURE}), " unsure"))

add_page("failure_group", tab="Failures")


@pages.get("/failures/groups/<signature>")
@reads
def failure_group(signature: str) -> str:
    """What is known of a cause, and its failures: all, or what the filter of the address leaves of them."""
    asked = _asked(signature)
    discarded = request.args.get("discarded") == "1"
    with services().reading.transaction() as connection:
        cause = failures.causes(connection, [signature])[signature]
        rows = failure_groups.group_rows(connection, asked, by="error")["groups"]
        parts = list(_parts(connection, asked))
        requeue = failure_groups.last_requeues(connection, {signature: cause}).get(signature)
    if not rows and cause.title == failures.UNKNOWN:
        abort(404)

    def address(before: str) -> str:
        return _address(asked, discarded="1" if discarded else "", before=before)

    return page(
        "failure_group",
        "monitoring/failure_group.html",
        cause=cause,
        group=rows[0] if rows else None,
        parts=parts,
        requeue=requeue,
        is_narrowed=asked != FailureFilter(signature=signature, statuses=REQUEUEABLE),
        longest_note=_LONGEST_NOTE,
        **list_context(asked, discarded=discarded, address=address),
    )


@pages.post("/failures/groups/<signature>/note")
@acts
def write_note(signature: str) -> AnyResponse:
    """A note to a cause; back to the page as it was."""
    asked = _asked(signature)
    with services().ledger.transaction() as connection:
        failures.write_note(connection, signature, request.form.get("text", "")[:_LONGEST_NOTE], author=operator())
    outdate()
    services().doorbell.ring("groups")
    flash("The note is written.")
    return redirect(_address(asked), code=303)


def _asked(signature: str) -> FailureFilter:
    """The filter of the address, of this group; any state unless it names one."""
    own = [(name, value) for name, value in request.args.items(multi=True) if value and name not in {"group", "before"}]
    return read_filter(MultiDict([("group", signature), *own, ("status", "any")]))


def _address(asked: FailureFilter, **more: str) -> str:
    return filter_url("failure_group", as_args(asked), signature=asked.signature or "", group="", **more)


def _parts(connection: Connection, asked: FailureFilter) -> Iterator[dict[str, Any]]:
    """What can be acted on at once: `count`, `word` for a button, and the filter that means these."""
    found = failures.groups(connection, asked, by="kind", limit=len(REQUEUEABLE))
    for statuses, word in _PARTS:
        count = sum(group.count for group in found if group.key in statuses)
        if count:
            yield {"count": count, "word": word, "args": as_args(replace(asked, statuses=asked.statuses & statuses))}
