"""Dead letters of digests told again: the bulk operation of `bulk`, from its preview to its plan, on notifications."""

from http import HTTPStatus

from flask import flash, redirect, request, url_for
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.bulk import LONGEST_REASON, RefusedError, check_confirmed, no_moment
from admin.monitoring.digest_history import read_dead_letters
from admin.monitoring.failure_filter import read_moment
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.masking import mask_text
from shared.domain.requeue import REASON_ABOVE, TYPED_ABOVE, OperationKind
from shared.ledger import digest_requeue, operations, requeue
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
    try:
        planned = _plan(request.form)
    except RefusedError as refused:
        flash(str(refused), "error")
        return _preview(request.form)
    return redirect(url_for("monitoring.operation_page", operation_id=planned.id), code=HTTPStatus.SEE_OTHER)


def _preview(args: MultiDict[str, str]) -> str:
    asked = read_dead_letters(args)
    with services().reading.transaction() as connection:
        seen = digest_requeue.judge(connection, asked, as_of=requeue.ledger_now(connection))
    return page(
        "digest_requeue",
        "monitoring/digest_requeue.html",
        seen=seen,
        filter_args=_as_args(asked),
        button=f"Requeue {seen.total:,} {'notification' if seen.total == 1 else 'notifications'}",
        needs_reason=_KIND.needs_reason(seen.total),
        reason_above=REASON_ABOVE,
        is_typed=seen.total > TYPED_ABOVE,
        reason=mask_text(args.get("reason", "")[:LONGEST_REASON]),
        longest_reason=LONGEST_REASON,
    )


def _plan(form: MultiDict[str, str]) -> Operation:
    asked, as_of = read_dead_letters(form), read_moment(form, "as_of")
    if as_of is None:
        raise no_moment()
    reason = mask_text(form.get("reason", "").strip()[:LONGEST_REASON])
    with services().ledger.transaction() as connection:
        if as_of > requeue.ledger_now(connection):
            raise no_moment()
        planned, frozen = operations.plan(
            connection, _KIND, asked, operator=operator(), reason=reason or None, as_of=as_of
        )
        if planned is None:
            raise RefusedError("There is nothing left to requeue: see below what became of them.")
        if frozen is not None:  # the second of two clicks is answered like the first
            check_confirmed(_KIND, frozen.total, reason=reason, form=form)
    return planned


def _as_args(asked: DeadLetterFilter) -> list[tuple[str, str]]:
    words = {"channel": asked.channel, "tenant": asked.tenant, "kind": asked.kind}
    return [(name, value) for name, value in words.items() if value] + [("id", str(id_)) for id_ in asked.ids]
