"""Sends: submit, list, look at, move, stop, hold."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from uuid import UUID

from flask import request
from pydantic import BaseModel

from admin.api.accept import accept, enqueue_ingest
from admin.api.body import read_model, spooled_body
from admin.api.limits import MAX_IDEMPOTENCY_KEY_CHARS
from admin.api.operations import operation
from admin.api.paging import SendQuery, decode_send_cursor, encode_cursor
from admin.api.schemas import (
    RescheduleRequest,
    SendAccepted,
    SendPage,
    SendRequest,
    SendView,
)
from admin.api.send_view import summary_of, view_of
from admin.auth import credential, tenant_id_of
from admin.errors import Fault, ProblemError, not_found
from admin.extensions import services
from shared.domain.ids import IdError, parse_send_id
from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger import batches, cancelling, sends
from shared.ledger.db import Connection

_REPLAYED = {"Idempotent-Replayed": "true"}
#: A cancelled send of at most this many deliveries is swept before the answer; a larger one by due work.
_SWEPT_AT_ONCE = 1_000


@operation(
    "POST",
    "/sends",
    summary="Submit a send",
    body=SendRequest,
    answer=SendAccepted,
    status=202,
    problems=(400, 401, 403, 409, 413, 415, 422, 503),
    headers={
        "Idempotency-Key": "1 to 255 visible ASCII characters, remembered for 24 hours unless set otherwise. The same "
        "key with the same body gives the first answer again (header Idempotent-Replayed: true); with another body "
        "422; while the first is running 409 with Retry-After. A request that stored nothing does not use its key up."
    },
)
def submit_send() -> BaseModel | tuple[BaseModel, Mapping[str, str]]:
    """
    Accept a submission of one to a million recipients.

    202 is answered once the send is in the ledger, and means that every delivery will be settled. All faults of
    the body are reported at once, each with its JSON pointer, and then nothing is stored. The first
    occurrence of an address on a channel counts (e-mail in any case, numbers as E.164), later ones are dropped and
    counted in `duplicates`. A `send_at` in the past is accepted and means at once. International domains are
    kept in their ASCII form.
    """
    caller = credential()
    tenant_id = tenant_id_of(caller)
    key = _idempotency_key()
    with spooled_body(services().settings.api_max_body_bytes) as body:
        answer = accept(services(), caller=caller, tenant_id=tenant_id, file=body.file, size=body.size, key=key)
    return answer.body, _REPLAYED if answer.replayed else {}


def _idempotency_key() -> str | None:
    values = request.headers.getlist("Idempotency-Key")
    if not values:
        return None
    key = values[0]
    visible = all("!" <= character <= "~" for character in key)
    if len(values) > 1 or not 1 <= len(key) <= MAX_IDEMPOTENCY_KEY_CHARS or not visible:
        raise ProblemError(
            400, "bad-idempotency-key", "Give one Idempotency-Key of 1 to 255 visible ASCII characters, without spaces."
        )
    return key


@operation("GET", "/sends", summary="List sends", query=SendQuery, answer=SendPage, problems=(401, 403, 422, 503))
def list_sends(query: SendQuery) -> BaseModel:
    """List the tenant's sends, newest first."""
    tenant_id = tenant_id_of(credential())
    before = decode_send_cursor(query.cursor) if query.cursor else sends.NEWEST
    with services().ledger.transaction() as connection:
        found = sends.page(connection, tenant_id=tenant_id, status=query.status, before=before, limit=query.limit + 1)
    shown = found[: query.limit]
    return SendPage(
        sends=[summary_of(send) for send in shown],
        next_cursor=encode_cursor(shown[-1].id) if len(found) > query.limit else None,
    )


@operation("GET", "/sends/{send_id}", summary="Look at a send", answer=SendView, problems=(401, 403, 404, 503))
def get_send(send_id: str) -> BaseModel:
    """Show a send's status, times and books, which balance at every moment."""
    tenant_id = tenant_id_of(credential())
    with services().ledger.transaction() as connection:
        return view_of(_found(connection, tenant_id, _id(send_id)))


@operation(
    "PATCH",
    "/sends/{send_id}",
    summary="Move a send to another time",
    body=RescheduleRequest,
    answer=SendView,
    problems=(400, 401, 403, 404, 409, 413, 415, 422, 503),
)
def reschedule_send(send_id: str) -> BaseModel:
    """Change `send_at` of a send that has not begun. null or a time in the past means at once."""
    tenant_id = tenant_id_of(credential())
    wanted = read_model(RescheduleRequest)
    with services().ledger.transaction() as connection:
        send = _found(connection, tenant_id, _id(send_id))
        if send.valid_until is not None and (wanted.send_at or datetime.now(UTC)) >= send.valid_until:
            detail = "is not before the send's valid_until: everything would expire unsent"
            raise ProblemError(
                422, "invalid-body", "The body has faults; nothing was changed.", faults=[Fault("/send_at", detail)]
            )
        if not sends.reschedule(connection, tenant_id=tenant_id, send_id=send.id, send_at=wanted.send_at):
            raise _conflict(_found(connection, tenant_id, send.id), "has begun or is over; it can no longer be moved")
        return view_of(_found(connection, tenant_id, send.id))


@operation(
    "POST",
    "/sends/{send_id}/cancel",
    summary="Stop a send for good",
    answer=SendView,
    problems=(401, 403, 404, 409, 503),
)
def cancel_send(send_id: str) -> BaseModel:
    """
    Cancel what is not sent yet.

    No new provider call starts once this is answered; calls in flight end and are recorded. Of a large send the
    deliveries become `cancelled` within seconds. Repeating it changes nothing.
    """
    tenant_id = tenant_id_of(credential())
    ledger = services().ledger
    with ledger.transaction() as connection:
        send = _found(connection, tenant_id, _id(send_id))
        if not sends.cancel(connection, tenant_id=tenant_id, send_id=send.id):
            send = _found(connection, tenant_id, send.id)
            if send.status is not SendStatus.CANCELLED:
                raise _conflict(send, "is over; there is nothing left to cancel")
    with ledger.transaction() as connection:
        if sum(send.accepted.values()) <= _SWEPT_AT_ONCE:
            batches.sweep(connection, send_id=send.id, status=DeliveryStatus.CANCELLED, limit=_SWEPT_AT_ONCE)
            batches.close_cancelled(connection, send.id)
        return view_of(_found(connection, tenant_id, send.id))


@operation("POST", "/sends/{send_id}/pause", summary="Hold a send", answer=SendView, problems=(401, 403, 404, 409, 503))
def pause_send(send_id: str) -> BaseModel:
    """Hold a send until it is resumed or cancelled. Calls in flight end. Repeating it changes nothing."""
    return _hold_or_go_on(
        send_id,
        lambda connection, tenant_id, send: sends.pause(
            connection, tenant_id=tenant_id, send_id=send, reason="paused through the API"
        ),
        over="is over; there is nothing left to hold",
    )


@operation(
    "POST", "/sends/{send_id}/resume", summary="Let a send go on", answer=SendView, problems=(401, 403, 404, 409, 503)
)
def resume_send(send_id: str) -> BaseModel:
    """
    Let a held send go on where it was: at its time if that is still to come, else now.

    Refused while one of our operators is cancelling it.
    """
    view = _hold_or_go_on(send_id, _resume, over="is over; it cannot go on")
    enqueue_ingest(services(), view.id)
    return view


def _resume(connection: Connection, tenant_id: int, send_id: UUID) -> bool:
    done = sends.resume(connection, tenant_id=tenant_id, send_id=send_id)
    if not done and cancelling.is_asked(connection, send_id):
        raise _conflict(_found(connection, tenant_id, send_id), "is being cancelled by an operator; it cannot go on")
    return done


def _hold_or_go_on(send_id: str, act: Callable[[Connection, int, UUID], bool], *, over: str) -> SendView:
    tenant_id = tenant_id_of(credential())
    with services().ledger.transaction() as connection:
        send = _found(connection, tenant_id, _id(send_id))
        act(connection, tenant_id, send.id)
        send = _found(connection, tenant_id, send.id)
        if send.status in (SendStatus.COMPLETED, SendStatus.CANCELLED):
            raise _conflict(send, over)
        return view_of(send)


def _id(text: str) -> UUID:
    try:
        return parse_send_id(text)
    except IdError:
        raise not_found("send") from None


def _found(connection: Connection, tenant_id: int, send_id: UUID) -> sends.Send:
    send = sends.find(connection, tenant_id=tenant_id, send_id=send_id)
    if send is None:
        raise not_found("send")
    return send


def _conflict(send: sends.Send, why: str) -> ProblemError:
    return ProblemError(409, "wrong-state", f"The send is {send.status.value}: it {why}.")
