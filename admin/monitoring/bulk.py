"""
A bulk operation from its preview to its plan: what it would do, why, and how many, typed where they are many.

The preview is an address that can be handed on; the form below it carries its moment, so that nothing that failed
later is taken, and a second click plans the same operation.
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from flask import flash, redirect, request, url_for
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.failure_filter import as_args, read_filter, read_moment
from admin.monitoring.frame import current_snapshot, page, pages
from admin.monitoring.panels import add_page
from shared.domain.masking import mask_text
from shared.domain.requeue import (
    REASON_ABOVE,
    REQUEUEABLE,
    TYPED_ABOVE,
    USUAL,
    FailureFilter,
    OperationKind,
    seconds_for,
)
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger import operations, providers, requeue
from shared.ledger.operations import Operation
from shared.ledger.requeue import Preview

#: "First 5 only".
_FEW = 5
LONGEST_REASON = 300
#: What a provider's word means for deliveries that are requeued now.
_WAITS = {
    "open": "its circuit is open: these will wait until it takes messages again",
    "half-open": "its circuit is being tried: these will wait for that",
    "isolated": "its configuration was refused: these will wait until it is put right",
    "not configured": "it is not configured: these will wait until it is",
    "gate": "it told us to slow down: these will wait until it opens",
    "held": "an operator holds it: these will wait until it is released",
}
_NOUNS = {Channel.EMAIL: ("e-mail", "e-mails"), Channel.SMS: ("text message", "text messages")}

add_page("preview", tab="Failures")


class RefusedError(Exception):
    """The form does not say what is needed; the text says what. Nothing is planned."""


@pages.get("/operations/new")
@reads
def preview_operation() -> str:
    """What an operation would take and leave; changes nothing."""
    return _preview(request.args)


@pages.post("/operations")
@acts
def plan_operation() -> AnyResponse | str:
    """Plan what the preview showed."""
    try:
        planned = _plan(request.form)
    except RefusedError as refused:
        flash(str(refused), "error")
        return _preview(request.form)
    return redirect(url_for("monitoring.operation_page", operation_id=planned.id), code=HTTPStatus.SEE_OTHER)


def _kind(args: MultiDict[str, str]) -> OperationKind:
    try:
        return OperationKind(args.get("kind", ""))
    except ValueError:
        known = ", ".join(kind.value for kind in OperationKind)
        raise ProblemError(HTTPStatus.BAD_REQUEST, "bad-operation", f"An operation's kind is one of {known}.") from None


def _read(args: MultiDict[str, str]) -> FailureFilter:
    """The set that is meant. `unsure` is never part of "all": it is named alone, or a person ticked it by hand."""
    asked = read_filter(args)
    if not asked.ids and asked.statuses == REQUEUEABLE and _kind(args) is OperationKind.REQUEUE:
        return replace(asked, statuses=USUAL)
    return asked


def _preview(args: MultiDict[str, str]) -> str:
    kind, asked = _kind(args), _read(args)
    # Not among what is only looked at: whoever acts after an outage needs the answer even from a loaded server.
    with services().ledger.transaction() as connection:
        seen = requeue.judge(connection, asked, kind=kind, accepts_duplicates=True)
    return page(
        "preview",
        "monitoring/preview.html",
        kind=kind,
        seen=seen,
        filter_args=as_args(asked),
        button=f"{kind.verb} {_noun(seen)}",
        seconds=seconds_for(seen.total, seen.sends, kind=kind),
        needs_reason=kind.needs_reason(seen.total),
        reason_above=REASON_ABOVE,
        is_typed=seen.total > TYPED_ABOVE,
        takes_unsure=kind is OperationKind.REQUEUE and _counts_unsure(seen),
        providers=_providers(seen) if kind is OperationKind.REQUEUE else [],
        few=_FEW if seen.total > _FEW and not asked.first else None,
        reason=mask_text(args.get("reason", "")[:LONGEST_REASON]),
        longest_reason=LONGEST_REASON,
    )


def _plan(form: MultiDict[str, str]) -> Operation:
    kind, asked = _kind(form), _read(form)
    as_of = read_moment(form, "as_of")
    if as_of is None:
        raise no_moment()
    accepts = form.get("accepts_duplicates") == "yes"
    if kind is OperationKind.REQUEUE and asked.statuses == {DeliveryStatus.UNSURE} and not accepts:
        raise RefusedError("These may have been sent already: tick that you accept possible duplicates.")
    reason = mask_text(form.get("reason", "").strip()[:LONGEST_REASON])
    with services().ledger.transaction() as connection:
        if as_of > requeue.ledger_now(connection):
            raise no_moment()
        planned, frozen = operations.plan(
            connection,
            kind,
            asked,
            operator=operator(),
            reason=reason or None,
            as_of=as_of,
            accepts_duplicates=accepts,
        )
        if planned is None:
            raise RefusedError(f"There is nothing left to {kind.value}: see below what became of them.")
        if frozen is not None:  # the second of two clicks is answered like the first
            check_confirmed(kind, frozen.total, reason=reason, form=form)
    return planned


def no_moment() -> ProblemError:
    """The form does not carry its preview's moment."""
    return ProblemError(HTTPStatus.BAD_REQUEST, "bad-operation", "The form does not say when its preview was made.")


def check_confirmed(kind: OperationKind, total: int, *, reason: str, form: MultiDict[str, str]) -> None:
    """Raises what undoes the plan: whoever asked saw another number, or did not say what is needed."""
    shown = form.get("shown", "")
    if not shown.isdigit() or total > int(shown):
        raise RefusedError("There are more by now than the preview showed: look again.")
    if kind.needs_reason(total) and not reason:
        raise RefusedError("Say why: the reason is kept with the operation.")
    if total > TYPED_ABOVE and form.get("typed", "").replace(",", "").strip() != shown:
        raise RefusedError(f"Type the number {shown} to confirm that you mean that many.")


def _counts_unsure(seen: Preview) -> bool:
    return any(share.status is DeliveryStatus.UNSURE for share in seen.taken)


def _noun(seen: Preview) -> str:
    channels = {share.channel for share in seen.taken}
    one, many = _NOUNS[channels.pop()] if len(channels) == 1 else ("delivery", "deliveries")
    return f"{seen.total:,} {one if seen.total == 1 else many}"


def _providers(seen: Preview) -> list[Mapping[str, Any]]:
    """The providers these would go to, with what keeps them waiting there."""
    channels = {share.channel.value for share in seen.taken}
    rows = current_snapshot().section("providers")["data"].get("providers", [])
    with services().reading.transaction() as connection:
        held = {hold.provider for hold in providers.holds(connection)}
    return [
        {"name": row["provider"], "waits": _WAITS.get("held" if row["provider"] in held else row["word"])}
        for row in rows
        if any(served["channel"] in channels and served["mode"] == "live" for served in row["serves"])
    ]
