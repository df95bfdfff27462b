"""`/admin/monitoring/failures/<delivery>`: everything that happened to one delivery, masked."""

from collections.abc import Sequence
from datetime import UTC
from http import HTTPStatus
from uuid import UUID

from flask import abort, flash, redirect, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from admin.monitoring.reason import given_reason
from shared.domain.ids import IdError, parse_delivery_id
from shared.domain.states import DeliveryStatus
from shared.ledger import audit, failures, send_page
from shared.ledger.failures import Event, FailedDelivery
from shared.ledger.send_page import ShownSend

_OPEN_FAILURES = {DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED, DeliveryStatus.UNSURE}

add_page("failure_item", tab="Failures")


@pages.get("/failures/<delivery>")
@reads
def failure_item(delivery: str) -> str:
    """The page of one delivery."""
    return _item(delivery)


@pages.post("/failures/<delivery>/reveal")
@acts
def reveal_address(delivery: str) -> str | AnyResponse:
    """The address in full, in this one answer; who asked for it and why is kept."""
    send_id, row_no = _parse(delivery)
    reason = given_reason()
    if not reason:
        flash("Say why you need the address.", "error")
        return redirect(url_for("monitoring.failure_item", delivery=delivery), code=HTTPStatus.SEE_OTHER)
    with services().ledger.transaction() as connection:
        if failures.find(connection, send_id, row_no) is None:
            abort(HTTPStatus.NOT_FOUND)
        audit.record(
            connection,
            operator=operator(),
            action="reveal address",
            target=f"delivery {delivery}",
            reason=reason,
            count=1,
            result="shown",
        )
    return _item(delivery, is_revealed=True)


def _item(delivery: str, *, is_revealed: bool = False) -> str:
    send_id, row_no = _parse(delivery)
    with services().reading.transaction() as connection:
        found = failures.find(connection, send_id, row_no)
        if found is None:
            raise _not_there(send_page.find(connection, send_id), row_no)
        events = failures.history(connection, send_id, row_no)
        cause = failures.causes(connection, [found.signature])[found.signature] if found.signature else None
    return page(
        "failure_item",
        "monitoring/failure_item.html",
        id=delivery,
        send_id=send_id,
        found=found,
        events=events,
        attempts=_attempts(found, events),
        cause=cause,
        revealed=found.address if is_revealed else None,
        error=found.error or "",
        can_discard=_is_open(found),
        can_requeue=_is_open(found) and not found.refused,
    )


def _not_there(send: ShownSend | None, row_no: int) -> ProblemError:
    """A delivery that retention removed is told from one that never was."""
    if send is None or send.forgotten_at is None or row_no > send.total:
        return ProblemError(HTTPStatus.NOT_FOUND, "not-found", "There is no such delivery; the address may be cut.")
    detail = (
        f"This delivery was removed by retention on {send.forgotten_at.astimezone(UTC):%Y-%m-%d}, with all others of"
        f" its send. The send and its totals stay: /admin/monitoring/sends/{send.id}"
    )
    return ProblemError(HTTPStatus.NOT_FOUND, "removed", detail)


def _is_open(found: FailedDelivery) -> bool:
    return found.status in _OPEN_FAILURES and found.prove_at is None and found.discarded_at is None


def _attempts(found: FailedDelivery, events: Sequence[Event]) -> int:
    """Attempts of all its lives: a requeue counts them anew."""
    used: dict[int, int] = {}
    for event in events:
        if event.kind == "attempt" and event.epoch < found.epoch:
            used[event.epoch] = max(used.get(event.epoch, 0), event.number or 0)
    return found.attempts + sum(used.values())


def _parse(delivery: str) -> tuple[UUID, int]:
    try:
        return parse_delivery_id(delivery)
    except IdError:
        abort(HTTPStatus.NOT_FOUND)
