"""The books of one channel of a send: where every accepted delivery is, and what those still owed wait for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, Self

from shared.domain.states import SendStatus

#: What may hold a provider's calls back: it told us to wait, its circuit is open, our configuration was refused, an
#: operator holds it, every call it may be given is in flight.
Reason = Literal["gate", "circuit", "isolated", "hold", "cap"]


@dataclass(frozen=True)
class Owed:
    """
    Where the owed deliveries of a channel are; the parts sum to all that is owed.

    `ready` may be called now; `in_hand` are in a call; `backoff` wait for their time, the first until
    `backoff_until`; `gate` to `cap` wait for their provider; `paused` and `scheduled` for their send; `proving` were in
    a call whose outcome is being found out.
    """

    ready: int = 0
    in_hand: int = 0
    backoff: int = 0
    gate: int = 0
    circuit: int = 0
    isolated: int = 0
    hold: int = 0
    cap: int = 0
    paused: int = 0
    scheduled: int = 0
    proving: int = 0
    backoff_until: datetime | None = None


@dataclass(frozen=True)
class ChannelBooks:
    """
    Where every accepted delivery of a channel is; `waiting` is the row status `owed`, `unsure` counts parked ones.

    `later` of the waiting are in batches whose time is to come, the first at `next_at`. Once retention has removed the
    batches, the totals written down when the send was finished stand in. `discarded` are those of the failed,
    dead-lettered and unsure that a person gave up; they are counted there and nowhere else.
    """

    accepted: int
    waiting: int = 0
    sending: int = 0
    retrying: int = 0
    proving: int = 0
    sent: int = 0
    failed: int = 0
    dead_lettered: int = 0
    unsure: int = 0
    suppressed: int = 0
    cancelled: int = 0
    expired: int = 0
    discarded: int = 0
    later: int = 0
    next_at: datetime | None = None

    @classmethod
    def read(cls, accepted: int, counts: Mapping[str, Any]) -> Self:
        """
        From the ledger's JSON; what it does not name is 0.

        What was discarded is counted in its state too (`discarded_failed` and so on), or was taken out of that
        already when retention wrote the totals down (`discarded`).
        """
        known = {field.name for field in fields(cls)} - {"accepted", "next_at", "discarded"}
        next_at = counts.get("next_at")
        read = {name: int(count) for name, count in counts.items() if name in known}
        given_up = {name: int(counts.get(f"discarded_{name}", 0)) for name in ("failed", "dead_lettered", "unsure")}
        return cls(
            accepted=accepted,
            next_at=datetime.fromisoformat(next_at) if next_at else None,
            discarded=sum(given_up.values()) + int(counts.get("discarded", 0)),
            **read | {name: read[name] - count for name, count in given_up.items() if count},
        )

    @property
    def owed(self) -> int:
        """Everything not settled."""
        return self.waiting + self.sending + self.retrying + self.proving

    @property
    def settled(self) -> int:
        """Everything that leaves its state only by a person or by late proof."""
        failed = self.failed + self.dead_lettered + self.unsure + self.discarded
        return self.sent + failed + self.suppressed + self.cancelled + self.expired

    @property
    def unaccounted(self) -> int:
        """0 unless something is wrong with the ledger."""
        return self.accepted - self.owed - self.settled

    def where(self, status: SendStatus, wait: Reason | None) -> Owed:
        """
        Split what is owed by where it is and what it waits for; `wait` is what holds the channel's provider back.

        A row in backoff waits for its time first, whatever its provider does. Rows whose time has come count as in
        backoff until they are taken up: the batches, from which this is read, do not tell them apart.
        """
        in_hand, proving = self.sending, self.proving
        waiting = self.waiting + self.retrying
        if status is SendStatus.PAUSED:
            return Owed(in_hand=in_hand, proving=proving, paused=waiting)
        if status is SendStatus.SCHEDULED:
            return Owed(in_hand=in_hand, proving=proving, scheduled=waiting)
        backoff = self.retrying + self.later
        due = {wait or "ready": waiting - backoff}
        return Owed(
            in_hand=in_hand,
            proving=proving,
            backoff=backoff,
            backoff_until=self.next_at if backoff else None,
            ready=due.get("ready", 0),
            gate=due.get("gate", 0),
            circuit=due.get("circuit", 0),
            isolated=due.get("isolated", 0),
            hold=due.get("hold", 0),
            cap=due.get("cap", 0),
        )
