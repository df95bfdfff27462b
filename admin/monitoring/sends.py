"""`/admin/monitoring/sends`: all sends, and one: where its deliveries are, what happened to it, what may be done."""

import logging
from collections.abc import Iterator, Mapping
from uuid import UUID

from flask import Response, g, request

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring.access import reads
from admin.monitoring.bad_filter import know_only, wrong_filter
from admin.monitoring.csv_export import MAX_ROWS, Cell, csv_response
from admin.monitoring.frame import current_snapshot, page, pages
from admin.monitoring.looks import STATUS_KINDS
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.send_state import DISCARDED, STATUSES, events, figures, has_any, may_do, stamp
from shared.domain.idn import readable
from shared.domain.ids import IdError, delivery_id, parse_send_id
from shared.domain.masking import mask_address, mask_text
from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger import send_page, sends
from shared.ledger.send_page import Recipient, ShownSend

_log = logging.getLogger(__name__)

_PAGE_SIZE = 50
_MOST_BATCHES = 50
#: Rows of a file that are read at once.
_CHUNK = 2_000
_LARGEST_ROW = 2**31 - 2


def _figures(view: View) -> Mapping[str, object]:
    send = find_send(view.args["id"])
    return {
        "send": send,
        "figures": figures(services(), send),
        "actions": may_do(send),
        "filter": _filter(view.args),
        "stamp": stamp(send),
    }


def _events(view: View) -> Mapping[str, object]:
    return {"events": events(services(), find_send(view.args["id"]))}


def _batches(view: View) -> Mapping[str, object]:
    with services().reading.transaction() as connection:
        found = send_page.open_batches(connection, parse_send_id(view.args["id"]), limit=_MOST_BATCHES)
    return {"batches": found, "batch_count": found[0].count if found else 0}


add_page("sends", tab="Overview")
add_page(
    "send",
    Panel("send_figures", "Deliveries", context=_figures),
    Panel("send_events", "Events", context=_events),
    Panel("send_batches", "Batches", context=_batches),
    tab="Overview",
    is_busy=lambda view: find_send(view.args["id"]).cancel_asked_at is not None,
)


@pages.get("/sends")
@reads
def send_list() -> str:
    """Sends of all tenants, newest first; `status=open` for those that are not over."""
    know_only("status", "before")
    status = request.args.get("status")
    if status not in {None, "", "open"}:
        raise wrong_filter("status", "is open, or nothing for all sends")
    only_open = status == "open"
    text = request.args.get("before")
    before = _id(text) if text else sends.NEWEST
    with services().reading.transaction() as connection:
        found = send_page.page(connection, only_open=only_open, before=before, limit=_PAGE_SIZE + 1)
    older = found[_PAGE_SIZE - 1].id if len(found) > _PAGE_SIZE else None
    owing_most = current_snapshot().section("sends")["data"].get("sends", ())
    return page(
        "sends",
        "monitoring/sends.html",
        found=found[:_PAGE_SIZE],
        doing={row["id"]: {"state": row["state"]} for row in owing_most},
        only_open=only_open,
        older=older,
    )


@pages.get("/sends/<send_id>")
@reads
def send_detail(send_id: str) -> str:
    """One send."""
    send, wanted, after = find_send(send_id), _filter(request.args), _after()
    found: list[Recipient] = []
    if has_any(send, wanted):
        statuses = STATUSES[wanted]
        with services().reading.transaction() as connection:
            found = send_page.recipients(
                connection,
                send.id,
                statuses=statuses,
                discarded=DISCARDED[wanted],
                after=after,
                limit=_PAGE_SIZE + 1,
            )
    return page(
        "send",
        "monitoring/send.html",
        path={"id": str(send.id)},
        send=send,
        figures_then=stamp(send),
        filter=wanted,
        rows=[_row(send, each) for each in found[:_PAGE_SIZE]],
        next_after=found[_PAGE_SIZE - 1].row_no if len(found) > _PAGE_SIZE else None,
        is_first=after == 0,
    )


@pages.get("/sends/<send_id>/recipients.csv")
@reads
def send_recipients_csv(send_id: str) -> Response:
    """The filter's recipients as a file, addresses masked."""
    send, wanted = find_send(send_id), _filter(request.args)
    header = ("delivery", "channel", "recipient", "reference", "state", "attempts", "last attempt", "settled",
              "provider", "receipt", "last error")  # fmt: skip
    return csv_response(f"send-{send.id}-{wanted}", header, _cells(send, wanted))


def _id(text: str) -> UUID:
    try:
        return parse_send_id(text)
    except IdError:
        raise _unknown() from None


def find_send(text: str) -> ShownSend:
    """Give a send as it is during this request: its books are a sum over tens of thousands of batches."""
    kept: dict[str, ShownSend] = g.setdefault("sends_found", {})
    if text not in kept:
        kept[text] = read_send(text)
    return kept[text]


def read_send(text: str) -> ShownSend:
    """Give a send as it is now."""
    send_id = _id(text)
    with services().reading.transaction() as connection:
        send = send_page.find(connection, send_id)
    if send is None:
        raise _unknown()
    return send


def _unknown() -> ProblemError:
    detail = (
        "There is no send with this id. Retention removes the recipients of a send that was over long ago; the send"
        " and its totals stay, so the address may be cut or mistyped."
    )
    return ProblemError(404, "not-found", detail)


def _filter(args: Mapping[str, str]) -> str:
    wanted = args.get("show") or "all"
    if wanted not in STATUSES:
        raise wrong_filter("show", f"is one of {', '.join(STATUSES)}")
    return wanted


def _after() -> int:
    return min(max(request.args.get("after", 0, type=int), 0), _LARGEST_ROW)


def _row(send: ShownSend, each: Recipient) -> dict[str, object]:
    """One recipient for people: nothing of the address but its mask."""
    return {
        "row_no": each.row_no,
        "href": f"/admin/monitoring/failures/{delivery_id(send.id, each.row_no)}",
        "channel": each.channel.value,
        "to": mask_address(each.channel.value, readable(each.address)),
        "reference": mask_text(each.reference) if each.reference else None,
        "state": _word(send, each),
        "kind": STATUS_KINDS[each.status],
        "attempts": each.attempt_count,
        "requeued": each.epoch,
        "at": each.last_attempt_at or each.settled_at,
        "next_at": each.next_attempt_at,
        "provider": each.provider,
        "receipt": each.receipt_status,
        "error": mask_text(each.last_error) if each.last_error and each.status is not DeliveryStatus.SENT else None,
    }


def _word(send: ShownSend, each: Recipient) -> str:
    if each.status is DeliveryStatus.UNSURE and each.proving:
        return "being proved"
    if each.status is DeliveryStatus.OWED:
        if send.status is SendStatus.CANCELLED:
            return "being cancelled"
        return "waiting"
    return each.status.words + (", discarded" if each.is_discarded else "")


def _cells(send: ShownSend, wanted: str) -> Iterator[tuple[Cell, ...]]:
    after = 0
    for _ in range(0, MAX_ROWS + 1, _CHUNK):
        with services().reading.transaction() as connection:
            found = send_page.recipients(
                connection,
                send.id,
                statuses=STATUSES[wanted],
                discarded=DISCARDED[wanted],
                after=after,
                limit=_CHUNK,
            )
        for each in found:
            after = each.row_no
            yield (
                delivery_id(send.id, each.row_no), each.channel.value,
                mask_address(each.channel.value, readable(each.address)), each.reference, _word(send, each),
                each.attempt_count, each.last_attempt_at, each.settled_at, each.provider, each.receipt_status,
                each.last_error,
            )  # fmt: skip
        if len(found) < _CHUNK:
            return
