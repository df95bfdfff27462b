"""What a send in progress is doing, in the words of the pages. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.domain.books import Reason

#: What keeps due work back on purpose: something about its provider, or its queue, which an operator paused.
HeldBack = Literal["gate", "circuit", "isolated", "hold", "queue"]

#: Why nothing of a channel may go, for people. A full cap is none: as much goes as may.
HELD_WORDS: dict[HeldBack, str] = {
    "gate": "the provider told us to slow down",
    "circuit": "circuit open",
    "isolated": "the provider is not set up right",
    "hold": "an operator holds the provider",
    "queue": "the queue is paused",
}

#: Seconds for which work may be due before a missing worker is worth saying.
_PATIENCE_S = 10.0

#: ok, busy, warn, bad, off: the shape and colour beside a word.
Kind = Literal["ok", "busy", "warn", "bad", "off"]


@dataclass(frozen=True, slots=True)
class Doing:
    """A state in a word, with a reason or remark, and a moment that belongs to the word."""

    word: str
    kind: Kind
    note: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How a send stands, over all its channels.

    `due` may go unless `held_back`; `later` are tried again, the first at `next_at`. `at_work`: a worker holds some of
    it; `others_at_work`: of another send that it takes turns with. `idle_s` seconds ago anything of it moved or came
    due. `paused` says by whom and why, for operators.
    """

    place: Literal["going", "paused", "scheduled"]
    accepted: int
    due: int
    in_hand: int
    later: int
    proving: int
    at_work: bool
    others_at_work: bool
    idle_s: float
    held_back: HeldBack | None = None
    send_at: datetime | None = None
    next_at: datetime | None = None
    paused: str | None = None

    @property
    def without_worker(self) -> bool:
        """Whether nobody is at what may go, or at what goes before it, for longer than taking it up takes."""
        if self.place != "going" or (self.due and self.held_back) or not self.due + self.in_hand:
            return False
        return not self.at_work and not self.others_at_work and self.idle_s > _PATIENCE_S


def doing(send: Standing) -> Doing:
    """Say what a send is doing."""
    if send.place == "paused":
        return Doing("paused", "warn", send.paused)
    if send.place == "scheduled":
        return Doing("scheduled", "off", at=send.send_at)
    if send.due and send.held_back == "queue":
        return Doing("queue paused", "warn")
    if send.due and send.held_back:
        return Doing("waiting for provider", "warn", HELD_WORDS[send.held_back])
    if send.without_worker:
        return Doing("waiting for a worker", "warn")
    if send.due + send.in_hand:
        return Doing("sending", "busy")
    if send.later * 10 >= send.accepted:
        return Doing("trying again", "warn", f"{send.later:,} not taken yet", send.next_at)
    if send.later:
        return Doing("finishing", "busy", f"{send.later:,} tried again", send.next_at)
    if send.proving:
        return Doing("finishing", "busy", f"{send.proving:,} being proved")
    return Doing("finishing", "busy")


def paused_words(by: str | None, reason: str | None) -> str | None:
    """By whom and why a send is paused; `by` is None where its tenant or the machine did it."""
    return f"{by}: {reason}" if by and reason else reason


def held_back_by(reason: Reason | None, *, queue_paused: bool) -> HeldBack | None:
    """What keeps due work back on purpose; None where it may go, a full cap included."""
    if queue_paused:
        return "queue"
    return None if reason is None or reason == "cap" else reason


def change(now: float, before: float) -> str:
    """A figure against that of the hour before, in the few words that a card has room for."""
    if before == 0:
        return "none before" if now else "as before"
    percent = round(100 * (now - before) / before)
    if percent == 0:
        return "as before"
    if percent > 1_000:  # noqa: PLR2004  # more says nothing
        return f"{now / before:,.0f} times as before"
    return f"{abs(percent)} % {'more' if percent > 0 else 'less'} than before"
