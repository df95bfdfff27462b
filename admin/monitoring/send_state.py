"""What the page of one send says of it, as plain values: state, books, time left, events. Nothing of a recipient."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from admin.extensions import Services
from admin.monitoring import flow
from admin.monitoring.flow_sections import as_json
from shared.domain.masking import mask_text
from shared.domain.pace import percent_done
from shared.domain.progress import Doing, doing, paused_words
from shared.domain.states import DeliveryStatus, SendEventKind, SendStatus
from shared.ledger import send_events, send_page
from shared.ledger.operations import UNDO_S
from shared.ledger.send_events import SendEvents
from shared.ledger.send_page import SendOperation, ShownSend

_S = DeliveryStatus
_MOST_EVENTS = 20
_MOST_BATCHES = 8


@dataclass(frozen=True, slots=True)
class Pill:
    """A filter of the recipients, with how many it shows."""

    key: str
    name: str
    statuses: frozenset[DeliveryStatus]
    #: Of the books' parts that it counts.
    parts: tuple[str, ...]
    kind: str
    always: bool = True
    #: Whether its recipients are those that a person gave up; None where that makes no difference.
    discarded: bool | None = None


#: In the order of the bar, what is good first.
PILLS = (
    Pill("sent", "Sent", frozenset({_S.SENT}), ("sent",), "ok"),
    Pill("retrying", "Retrying", frozenset({_S.RETRYING}), ("retrying",), "warn"),
    Pill(
        "failed",
        "Failed",
        frozenset({_S.FAILED, _S.DEAD_LETTERED}),
        ("failed", "dead_lettered"),
        "bad",
        discarded=False,
    ),
    Pill("unsure", "Unsure", frozenset({_S.UNSURE}), ("unsure", "proving"), "warn", discarded=False),
    Pill("waiting", "Waiting", frozenset({_S.OWED, _S.SENDING}), ("waiting", "sending"), "off"),
    Pill(
        "stopped",
        "Not sent on purpose",
        frozenset({_S.SUPPRESSED, _S.CANCELLED, _S.EXPIRED}),
        ("suppressed", "cancelled", "expired"),
        "off",
        always=False,
    ),
    Pill(
        "discarded",
        "Discarded",
        frozenset({_S.FAILED, _S.DEAD_LETTERED, _S.UNSURE}),
        ("discarded",),
        "off",
        always=False,
        discarded=True,
    ),
)
STATUSES = {"all": frozenset(DeliveryStatus), **{pill.key: pill.statuses for pill in PILLS}}
#: Of each filter, whether its recipients were discarded; None: both.
DISCARDED = {"all": None, **{pill.key: pill.discarded for pill in PILLS}}

_OVER = {SendStatus.COMPLETED: Doing("completed", "ok"), SendStatus.CANCELLED: Doing("cancelled", "off")}


def figures(services: Services, send: ShownSend) -> dict[str, Any]:
    """State, share done, time left, pills and the parts of the bar."""
    found = flow.look_at(services, send.id)
    state = _OVER.get(send.status)
    words = None
    if found is not None and state is None:
        state = doing(flow.standing(*found))
        words = flow.send_time_left(*found).words
    settled = sum(books.settled for books in send.books.values())
    pills = [
        {"key": pill.key, "name": pill.name, "count": send.summed(*pill.parts), "kind": pill.kind}
        for pill in PILLS
        if pill.always or send.summed(*pill.parts)
    ]
    return {
        "state": as_json(state or Doing("finishing", "busy")),
        "percent": percent_done(settled, send.total),
        "time_left": words,
        "pills": [{"key": "all", "name": "All", "count": send.total, "kind": "off"}, *pills],
        "bar": [(pill.name.lower(), send.summed(*pill.parts), pill.kind) for pill in PILLS],
        "parts": {
            name: send.summed(name) for name in ("suppressed", "cancelled", "expired", "dead_lettered", "proving")
        },
        "cancelled_for_good_at": send.cancel_asked_at and send.cancel_asked_at + timedelta(seconds=UNDO_S),
        "unaccounted": sum(books.unaccounted for books in send.books.values()),
    }


def stamp(send: ShownSend) -> str:
    """What changes whenever the pills' figures do: a list that was read with others is not of now."""
    return "-".join(str(send.summed(*pill.parts)) for pill in PILLS)


def has_any(send: ShownSend, wanted: str) -> bool:
    """Whether a pill has anything to show: no row needs to be looked for that the books do not count."""
    return any(send.summed(*pill.parts) for pill in PILLS if wanted in {"all", pill.key})


def may_do(send: ShownSend) -> list[str]:
    """The actions that a send's state allows; one that is being cancelled can be undone, and nothing else."""
    if send.status in _OVER or send.cancel_asked_at:
        return []
    return ["resume" if send.status is SendStatus.PAUSED else "pause", "cancel"]


def events(services: Services, send: ShownSend) -> list[dict[str, Any]]:
    """What happened to a send, newest first: `{"at", "what", "note", "href"}`."""
    with services.reading.transaction() as connection:
        deeds = send_page.deeds(connection, send.id, limit=_MOST_EVENTS)
        operations = send_page.operations(connection, send.id, limit=_MOST_EVENTS)
        recovered = send_events.newest(connection, send.id, limit=_MOST_EVENTS)
    found = [
        _event(send.created_at, "Accepted", f"{send.total:,} deliver{'y' if send.total == 1 else 'ies'}"),
        _event(send.started_at, "Begun", "fanned out to the workers"),
        _event(send.completed_at, "Completed", None),
        _event(send.cancelled_at, "Cancelled", "nothing more is sent"),
        _event(send.forgotten_at, "Recipients removed", "by retention; the totals stay"),
    ]
    if send.status is SendStatus.PAUSED:
        found.append(_event(send.paused_at, "Paused", mask_text(paused_words(send.paused_by, send.pause_reason) or "")))
    elif send.resumed_at:
        deed = next((deed.action for deed in deeds if deed.at == send.resumed_at), "")
        found.append(_event(send.resumed_at, "Went on", _WENT_ON.get(deed, "resumed, or some of it requeued")))
    found += [
        _event(
            deed.at,
            f"{deed.operator}: {deed.action}",
            f"{mask_text(deed.reason)} · {deed.result}" if deed.reason else deed.result,
        )
        for deed in deeds
    ]
    found += [
        _event(
            operation.created_at,
            f"{operation.operator}: {operation.kind} of {operation.of_send:,}{' or more' if operation.is_cut else ''}",
            _operation_note(operation),
            href=f"/admin/monitoring/operations/{operation.id}",
        )
        for operation in operations
    ]
    found += [_event(each.at, *_told(each)) for each in recovered]
    return sorted((event for event in found if event["at"]), key=lambda event: str(event["at"]), reverse=True)


def _operation_note(operation: SendOperation) -> str:
    others = f"; {operation.total:,} with those of other sends" if operation.total > operation.of_send else ""
    return f"{operation.status}, {operation.done_of_send:,} done{others}"


#: Why a send went on, by what an operator did at that moment; a tenant's resume and a requeue are not told apart.
_WENT_ON = {"resume send": "resumed", "undo cancel": "its cancel was undone"}

_K = SendEventKind
#: What happened, after the batches that it happened to; and the deliveries that it happened to, before their number.
_WORDS = {
    _K.WORKER_DIED: ("taken back from a worker that died", "calls in flight, now unsure"),
    _K.WORKER_HUNG: ("taken from a worker that recorded nothing any more", "calls in flight, now unsure"),
    _K.OUTCOME_LOST: ("taken back after a fault of its worker", "calls in flight, now unsure"),
    _K.MESSAGE_LOST: ("Its message was lost and made anew", None),
    _K.OVERDUE: ("Begun late, by the reconciler", None),
    _K.GIVEN_UP: ("given up by the reconciler", "deliveries failed"),
    _K.OUTAGE_WAITED_OUT: ("given up after the outage", "deliveries dead-lettered"),
    _K.DRAINED: ("Left by a worker that was told to stop", None),
}


def _told(each: SendEvents) -> tuple[str, str | None]:
    what, of_them = _WORDS[each.kind]
    if each.batches:
        shown = ", ".join(str(number) for number in each.batches[:_MOST_BATCHES])
        more = f" and {len(each.batches) - _MOST_BATCHES} more" if len(each.batches) > _MOST_BATCHES else ""
        what = f"Batch{'es' if len(each.batches) > 1 else ''} {shown}{more} {what}"
    if of_them is not None:
        return what, f"{of_them}: {each.deliveries or 0:,}"
    times = f"{each.count} times within a minute" if each.count > 1 else None
    return what, each.worker or times


def _event(at: datetime | None, what: str, note: str | None, *, href: str | None = None) -> dict[str, Any]:
    return {"at": at.isoformat() if at else None, "what": what, "note": note, "href": href}
