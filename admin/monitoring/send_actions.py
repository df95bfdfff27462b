"""What a person does to a send: pause, resume, cancel what remains; each asks first, and a cancel can be undone."""

import logging
from collections.abc import Mapping
from uuid import UUID

import redis
from flask import flash, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring import confirming
from admin.monitoring.access import acts, operator
from admin.monitoring.confirming import RefusedError
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from admin.monitoring.reason import given_reason
from admin.monitoring.send_state import may_do
from admin.monitoring.sends import find_send, read_send
from admin.monitoring.snapshot_cache import outdate
from shared.domain.progress import paused_words
from shared.domain.requeue import TYPED_ABOVE
from shared.domain.states import SendStatus
from shared.ledger import audit, cancelling, send_page, sends
from shared.ledger.db import Connection
from shared.ledger.send_page import ShownSend

_log = logging.getLogger(__name__)

#: What a person may do to a send, and what the page then says.
_DONE: Mapping[str, str] = {
    "pause": "is paused; calls in flight end",
    "resume": "goes on",
    "cancel": "is stopped",
}

add_page("send_action", tab="Overview")


@pages.get("/sends/<send_id>/<action>")
@acts
def ask_send(send_id: str, action: str) -> str:
    """Say what pausing, resuming or cancelling a send will do, and ask why."""
    send = find_send(send_id)
    _check(action)
    return page(
        "send_action",
        "monitoring/send_action.html",
        send=send,
        action=action,
        is_possible=action in may_do(send),
        is_typed=action == "cancel" and send.remaining > TYPED_ABOVE,
        paused=paused_words(send.paused_by, send.pause_reason),
    )


@pages.post("/sends/<send_id>/<action>")
@acts
def change_send(send_id: str, action: str) -> AnyResponse:
    """Pause, resume or cancel a send; audited."""
    send = find_send(send_id)
    _check(action)
    reason = given_reason()
    if action != "resume" and not reason:
        flash("Say why: everybody who looks at the send will read it.", "error")
        return redirect(f"{_page_of(send)}/{action}")
    if action == "cancel" and action in may_do(send):
        try:
            confirming.check_shown(send.remaining, request.form)
            confirming.check_typed(send.remaining, request.form)
        except RefusedError as refused:
            flash(str(refused), "error")
            return redirect(f"{_page_of(send)}/{action}")
    with services().ledger.transaction() as connection:
        done = _change(connection, send, action, reason)
        result = ("planned" if action == "cancel" else "done") if done else f"the send was {send.status.value}"
        _record(connection, send, f"{action} send", result, reason)
    if done and action == "resume":
        _fan_out(send.id)
    return _back(send, f"The send {_DONE[action]}." if done else None)


@pages.post("/sends/<send_id>/cancel/undo")
@acts
def undo_cancel(send_id: str) -> AnyResponse:
    """Take a cancel back: the send goes on, or stays paused, as before."""
    send = find_send(send_id)
    with services().ledger.transaction() as connection:
        became = cancelling.undo(connection, send.id)
        if became is not None:
            _record(connection, send, "undo cancel", f"the send is {became.value}")
    if became is not None and became is not SendStatus.PAUSED:
        _fan_out(send.id)
    return _back(send, None if became is None else "Undone: the send is as it was.")


def _check(action: str) -> None:
    if action not in _DONE:
        raise ProblemError(404, "not-found", "A send is paused, resumed or cancelled.")


def _page_of(send: ShownSend) -> str:
    return f"/admin/monitoring/sends/{send.id}"


def _change(connection: Connection, send: ShownSend, action: str, reason: str) -> bool:
    if action == "pause":
        return sends.pause(connection, tenant_id=send.tenant_id, send_id=send.id, reason=reason, operator=operator())
    if action == "resume":
        return sends.resume(connection, tenant_id=send.tenant_id, send_id=send.id)
    return cancelling.begin(connection, send.id, operator=operator(), reason=reason)


def _record(connection: Connection, send: ShownSend, action: str, result: str, reason: str = "") -> None:
    audit.record(
        connection,
        operator=operator(),
        action=action,
        target=send_page.target(send.id),
        reason=reason or None,
        count=sum(books.owed for books in send.books.values()),
        result=result,
    )


def _back(send: ShownSend, said: str | None) -> AnyResponse:
    """To the send's page, which says what was done."""
    if said:
        flash(said)
    else:
        flash(f"Nothing was changed: the send is {read_send(str(send.id)).status.value}.", "warning")
    outdate()
    services().doorbell.ring("channels", "sends", "send_figures", "send_events")
    return redirect(_page_of(send))


def _fan_out(send_id: UUID) -> None:
    try:
        services().jobs.ingest(send_id)
    except redis.RedisError as error:
        # The reconciler finds it.
        _log.warning("ingest_not_enqueued", extra={"send_id": str(send_id), "error": type(error).__name__})
