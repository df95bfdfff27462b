"""
The form under the preview of a bulk operation, whatever it takes: what it asks for, and the plan that comes of it.

It carries the moment of its preview, so that nothing that came later is taken, and a second click plans the same
operation.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import flash, redirect, request, url_for
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring.access import operator
from admin.monitoring.failure_filter import read_moment
from admin.monitoring.reason import LONGEST, given_reason
from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.requeue import REASON_ABOVE, TYPED_ABOVE, FailureFilter, OperationKind
from shared.ledger import clock, operations
from shared.ledger.operations import Operation


class RefusedError(Exception):
    """The form does not say what is needed; the text says what. Nothing is planned."""


def answer(
    plan: Callable[[MultiDict[str, str]], Operation], preview: Callable[[MultiDict[str, str]], str]
) -> AnyResponse | str:
    """Answer the form that is posted: on to the operation, or its preview once more with what is missing."""
    try:
        planned = plan(request.form)
    except RefusedError as refused:
        flash(str(refused), "error")
        return preview(request.form)
    return redirect(url_for("monitoring.operation_page", operation_id=planned.id), code=HTTPStatus.SEE_OTHER)


def form_context(kind: OperationKind, total: int) -> dict[str, Any]:
    """What the form's template needs to ask for `total` of them."""
    return {
        "needs_reason": kind.needs_reason(total),
        "reason_above": REASON_ABOVE,
        "is_typed": total > TYPED_ABOVE,
        "reason": given_reason(),
        "longest_reason": LONGEST,
    }


def plan(
    kind: OperationKind,
    asked: FailureFilter | DeadLetterFilter,
    form: MultiDict[str, str],
    *,
    accepts_duplicates: bool = False,
) -> Operation:
    """
    Plan what the form's preview showed.

    Raises: RefusedError, or ProblemError 400 for a form that carries no moment, or one to come.
    """
    as_of, reason = read_moment(form, "as_of"), given_reason()
    if as_of is None:
        raise _no_moment()
    with services().ledger.transaction() as connection:
        if as_of > clock.ledger_now(connection):
            raise _no_moment()
        planned, frozen = operations.plan(
            connection,
            kind,
            asked,
            operator=operator(),
            reason=reason or None,
            as_of=as_of,
            accepts_duplicates=accepts_duplicates,
        )
        if planned is None:
            raise RefusedError(f"There is nothing left to {kind.value}: see below what became of them.")
        if frozen is not None:  # the second of two clicks is answered like the first
            _check(kind, frozen.total, reason=reason, form=form)
    return planned


def _no_moment() -> ProblemError:
    return ProblemError(HTTPStatus.BAD_REQUEST, "bad-operation", "The form does not say when its preview was made.")


def _check(kind: OperationKind, total: int, *, reason: str, form: MultiDict[str, str]) -> None:
    """Raises what undoes the plan: whoever asked saw another number, or did not say what is needed."""
    check_shown(total, form)
    if kind.needs_reason(total) and not reason:
        raise RefusedError("Say why: the reason is kept with the operation.")
    check_typed(total, form)


def check_shown(total: int, form: MultiDict[str, str]) -> None:
    """Raises: RefusedError where the form was made for fewer than `total`."""
    shown = form.get("shown", "")
    if not (shown.isascii() and shown.isdigit()) or total > int(shown):
        raise RefusedError("There are more by now than the preview showed: look again.")


def check_typed(total: int, form: MultiDict[str, str]) -> None:
    """Raises: RefusedError where there are so many that the number shown is to be typed, and it was not."""
    shown = form.get("shown", "")
    if total > TYPED_ABOVE and form.get("typed", "").replace(",", "").strip() != shown:
        raise RefusedError(f"Type the number {shown} to confirm that you mean that many.")
