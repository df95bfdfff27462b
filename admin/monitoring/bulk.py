"""A bulk operation on failures: its preview, an address that can be handed on, and the form that plans it."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from flask import request
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring import confirming
from admin.monitoring.access import acts, reads
from admin.monitoring.confirming import RefusedError
from admin.monitoring.failure_filter import as_args, read_filter
from admin.monitoring.frame import current_snapshot, page, pages
from admin.monitoring.panels import add_page
from shared.domain.requeue import (
    REQUEUEABLE,
    USUAL,
    FailureFilter,
    LeftOut,
    OperationKind,
    seconds_for,
)
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger import providers, requeue
from shared.ledger.operations import Operation
from shared.ledger.requeue import Preview

#: "First 5 only".
_FEW = 5
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


@pages.get("/operations/new")
@reads
def preview_operation() -> str:
    """What an operation would take and leave; changes nothing."""
    if request.args.get("ticked") and not request.args.getlist("id"):
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "bad-operation", "Nothing is ticked: go back and tick what is meant."
        )
    return _preview(request.args)


@pages.post("/operations")
@acts
def plan_operation() -> AnyResponse | str:
    """Plan what the preview showed."""
    return confirming.answer(_plan, _preview)


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
    services().reading.refuse_while_away()
    # Not among what is only looked at: whoever acts after an outage needs the answer even from a loaded server.
    with services().ledger.transaction() as connection:
        seen = requeue.judge(connection, asked, kind=kind, accepts_duplicates=True)
        without = requeue.judge(connection, asked, kind=kind, accepts_duplicates=False) if asked.ids else seen
    return page(
        "preview",
        "monitoring/preview.html",
        kind=kind,
        seen=seen,
        filter_args=as_args(asked),
        button=f"{kind.verb} {_noun(seen)}",
        seconds=seconds_for(seen.total, seen.sends, kind=kind),
        takes_unsure=kind is OperationKind.REQUEUE and _counts_unsure(seen),
        reported=without.left_out.get(LeftOut.REPORTED, 0) if without is not seen else 0,
        providers=_providers(seen) if kind is OperationKind.REQUEUE else [],
        few=_FEW if seen.total > _FEW and not asked.first else None,
        **confirming.form_context(kind, seen.total),
    )


def _plan(form: MultiDict[str, str]) -> Operation:
    kind, asked = _kind(form), _read(form)
    accepts = form.get("accepts_duplicates") == "yes"
    if kind is OperationKind.REQUEUE and asked.statuses == {DeliveryStatus.UNSURE} and not accepts:
        raise RefusedError("These may have been sent already: tick that you accept possible duplicates.")
    return confirming.plan(kind, asked, form, accepts_duplicates=accepts)


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
