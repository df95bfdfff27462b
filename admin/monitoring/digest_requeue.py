"""Dead letters of digests told again: the preview of a bulk operation on notifications, and the form that plans it."""

from flask import request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring import confirming
from admin.monitoring.access import acts, reads
from admin.monitoring.digest_history import read_dead_letters
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import OperationKind
from shared.ledger import clock, digest_requeue
from shared.ledger.operations import Operation

_KIND = OperationKind.REQUEUE

add_page("digest_requeue", tab="Overview")


@pages.get("/digests/requeue")
@reads
def preview_digest_requeue() -> str:
    """What a requeue of dead letters would take and leave; changes nothing."""
    return _preview(request.args)


@pages.post("/digests/requeue")
@acts
def plan_digest_requeue() -> AnyResponse | str:
    """Plan what the preview showed."""
    return confirming.answer(_plan, _preview)


def _preview(args: MultiDict[str, str]) -> str:
    asked = read_dead_letters(args)
    with services().reading.transaction() as connection:
        seen = digest_requeue.judge(connection, asked, as_of=clock.ledger_now(connection))
    return page(
        "digest_requeue",
        "monitoring/digest_requeue.html",
        seen=seen,
        filter_args=_as_args(asked),
        button=f"Requeue {seen.total:,} {'notification' if seen.total == 1 else 'notifications'}",
        **confirming.form_context(_KIND, seen.total),
    )


def _plan(form: MultiDict[str, str]) -> Operation:
    return confirming.plan(_KIND, read_dead_letters(form), form)


def _as_args(asked: DeadLetterFilter) -> list[tuple[str, str]]:
    words = {"channel": asked.channel, "tenant": asked.tenant, "kind": asked.kind}
    return [(name, value) for name, value in words.items() if value] + [("id", str(id_)) for id_ in asked.ids]
