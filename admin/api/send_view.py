"""A send as the API shows it: its books, what its deliveries wait for, and how long it will take."""

from collections.abc import Mapping
from dataclasses import asdict

from admin.api.accept import links_of
from admin.api.books import Books, OwedWhere
from admin.api.schemas import Counts, SendSummary, SendView
from admin.extensions import services
from shared.domain.books import Reason
from shared.domain.progress import HELD_WORDS
from shared.domain.states import Channel, SendStatus
from shared.ledger import sends
from shared.recovery.waits import Waits

#: Seconds and share of a send before its pace says anything.
_LEAST_PACE_S, _LEAST_PACE_SHARE = 5.0, 0.01


def summary_of(send: sends.SendSummary) -> SendSummary:
    """What lists and answers tell of a send."""
    return SendSummary(
        id=send.id,
        name=send.name,
        status=send.status,
        mode=send.mode,
        accepted=Counts(**send.accepted),
        created_at=send.created_at,
        send_at=send.send_at,
        completed_at=send.completed_at,
        cancelled_at=send.cancelled_at,
        links=links_of(send.id),
    )


def view_of(send: sends.Send) -> SendView:
    """All of a send; its providers are asked whether they are held back."""
    waits = {channel: _wait(send, channel) for channel in send.books}
    return SendView(
        **dict(summary_of(send)),
        lane=send.lane,
        duplicates=Counts(**send.duplicates),
        segments=send.segments,
        valid_until=send.valid_until,
        queued_at=send.queued_at,
        started_at=send.started_at,
        paused_at=send.paused_at,
        pause_reason=send.pause_reason,
        seconds_left=_seconds_left(send, waits),
        books={
            channel: Books(
                accepted=books.accepted,
                sent=books.sent,
                failed=books.failed,
                dead_lettered=books.dead_lettered,
                discarded=books.discarded,
                suppressed=books.suppressed,
                cancelled=books.cancelled,
                expired=books.expired,
                unsure=books.unsure,
                owed=books.owed,
                waiting=books.waiting,
                sending=books.sending,
                retrying=books.retrying,
                proving=books.proving,
                owed_where=OwedWhere(**asdict(books.where(send.status, waits[channel]))),
                unaccounted=books.unaccounted,
            )
            for channel in Channel
            if (books := send.books.get(channel)) is not None
        },
    )


def _wait(send: sends.Send, channel: Channel) -> Reason | None:
    """What holds the channel's provider back, asked only where something is owed that could go now."""
    books = send.books[channel]
    if send.status is not SendStatus.SENDING or books.waiting == books.later:
        return None
    return Waits(services().link, services().settings).shown(channel, send.mode)


def _seconds_left(send: sends.Send, waits: Mapping[Channel, Reason | None]) -> int | None:
    """
    What is left at the pace since the beginning.

    Nothing while a provider is held back, nor after a pause, which would make the pace look slower.
    """
    if send.status is not SendStatus.SENDING or send.started_at is None or send.resumed_at is not None:
        return None
    if any(reason in HELD_WORDS for reason in waits.values()):
        return None
    elapsed = (send.read_at - send.started_at).total_seconds()
    settled = sum(books.settled for books in send.books.values())
    owed = sum(books.owed for books in send.books.values())
    if not any(books.waiting > books.later or books.sending for books in send.books.values()):
        return None  # all that is left has a time of its own: the next try, or an answer
    if elapsed < _LEAST_PACE_S or settled < _LEAST_PACE_SHARE * (settled + owed):
        return None
    return round(owed * elapsed / settled)
