"""Dead letters of digests told again or discarded: the preview of a bulk operation, and the form that plans it."""

from functools import partial

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

add_page("digest_requeue", tab="Overview")


@pages.get("/digests/requeue")
@reads
def preview_digest_requeue() -> str:
    """What a requeue of dead letters would take and leave; changes nothing."""
    return _preview(OperationKind.REQUEUE, request.args)


@pages.get("/digests/discard")
@reads
def preview_digest_discard() -> str:
    """What would be discarded; changes nothing."""
    return _preview(OperationKind.DISCARD, request.args)


@pages.post("/digests/requeue")
@acts
def plan_digest_requeue() -> AnyResponse | str:
    """Plan what the preview showed."""
    return _answer(OperationKind.REQUEUE)


@pages.post("/digests/discard")
@acts
def plan_digest_discard() -> AnyResponse | str:
    """Likewise."""
    return _answer(OperationKind.DISCARD)


def _answer(kind: OperationKind) -> AnyResponse | str:
    return confirming.answer(partial(_plan, kind), partial(_preview, kind))


def _preview(kind: OperationKind, args: MultiDict[str, str]) -> str:
    asked = read_dead_letters(args)
    with services().reading.transaction() as connection:
        seen = digest_requeue.judge(connection, asked, kind=kind, as_of=clock.ledger_now(connection))
    return page(
        "digest_requeue",
        "monitoring/digest_requeue.html",
        kind=kind,
        seen=seen,
        filter_args=_as_args(asked),
        button=f"{kind.verb} {seen.total:,} {'notification' if seen.total == 1 else 'notifications'}",
        **confirming.form_context(kind, seen.total),
    )


def _plan(kind: OperationKind, form: MultiDict[str, str]) -> Operation:
    return confirming.plan(kind, read_dead_letters(form), form)


def _as_args(asked: DeadLetterFilter) -> list[tuple[str, str]]:
    words = {"channel": asked.channel, "tenant": asked.tenant, "kind": asked.kind}
    return [(name, value) for name, value in words.items() if value] + [("id", str(id_)) for id_ in asked.ids]
