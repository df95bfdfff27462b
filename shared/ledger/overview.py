"""What the Overview reads: what is owed by channel and lane, and the sends in progress; sums over the batches."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from shared.domain.books import ChannelBooks
from shared.domain.states import Channel, Lane, Mode
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_OPEN = statement("select_open_work")
_SUMS = statement("select_sums_of_sends")
_RIVALS = statement("select_rivals")

#: Where a send stands: it may go, or a person or its own time keeps it.
Place = Literal["going", "paused", "scheduled"]


@dataclass(frozen=True, slots=True)
class LaneWork:
    """
    What is owed over one lane of a channel.

    `due` may go now, `later` wait for their next try, `paused` and `scheduled` for their send, `proving` for proof;
    `next_hour` begin within the hour. `oldest_due_at` is since when the oldest due work may go.
    """

    mode: Mode
    channel: Channel
    lane: Lane
    owed: int
    due: int
    later: int
    paused: int
    scheduled: int
    next_hour: int
    in_hand: int
    proving: int
    oldest_due_at: datetime | None
    sends_going: int


@dataclass(frozen=True, slots=True)
class Part:
    """One channel of a send: `held` batches are with a worker; `due_for` is since when something may go."""

    owed: int
    due: int
    later: int
    in_hand: int
    proving: int
    due_for: datetime | None
    next_at: datetime | None
    last_at: datetime | None
    held: int
    progress_at: datetime | None


@dataclass(frozen=True, slots=True)
class OpenSend:
    """
    A send with something owed.

    `running`: a living worker has one of its chains; `others_running`: one of another send that it takes turns with.
    """

    id: UUID
    tenant: str
    name: str | None
    mode: Mode
    lane: Lane
    place: Place
    accepted: Mapping[str, int]
    send_at: datetime | None
    pause_reason: str | None
    paused_by: str | None
    owed: int
    running: bool
    others_running: bool
    parts: Mapping[Channel, Part]


@dataclass(frozen=True, slots=True)
class OpenWork:
    """
    Everything owed at one moment, `read_at`.

    `sends` are those that owe most, the ones that may go first; `count` is how many there are in all.
    """

    lanes: list[LaneWork]
    sends: list[OpenSend]
    count: int
    read_at: datetime


def open_work(connection: Connection, *, most: int, only: UUID | None = None) -> OpenWork:
    """Everything owed, and the `most` sends that owe most; `only` that of one send."""
    # A plan for any parameters would read every send's batches to find those of one.
    row = connection.execute(_OPEN, {"most": most, "only": only}, prepare=False).fetchone()
    assert row is not None  # noqa: S101  # a SELECT without FROM has one row
    lanes, sends, count, read_at = row
    return OpenWork([_lane(lane) for lane in lanes], [_send(send) for send in sends], count, read_at)


def sums(connection: Connection, sends: Sequence[OpenSend]) -> dict[tuple[UUID, Channel], ChannelBooks]:
    """Where every accepted delivery of these sends is."""
    accepted = {send.id: send.accepted for send in sends}
    return {
        (send_id, channel): ChannelBooks.read(accepted[send_id][channel], found)
        for (send_id, channel), found in counts(connection, list(accepted)).items()
    }


def counts(connection: Connection, send_ids: Sequence[UUID]) -> dict[tuple[UUID, Channel], Mapping[str, Any]]:
    """The sums over the batches of these sends, for `ChannelBooks.read`; none where retention removes them."""
    rows = connection.execute(_SUMS, {"send_ids": list(send_ids)})
    return {(send_id, Channel(channel)): found for send_id, channel, found in rows}


def owed_beside(
    connection: Connection, *, send_id: UUID, channel: Channel, mode: Mode, mine: int, lanes: Collection[Lane]
) -> int:
    """How many deliveries of other sends of these lanes leave until this one's `mine` have, where sends take turns."""
    parameters = {
        "send_id": send_id,
        "channel": channel.value,
        "mode": mode.value,
        "mine": mine,
        "lanes": [lane.value for lane in lanes],
    }
    row = connection.execute(_RIVALS, parameters).fetchone()
    return 0 if row is None else int(row[0])


def _lane(found: Mapping[str, Any]) -> LaneWork:
    counts = {name: int(found[name]) for name in (
        "owed", "due", "later", "paused", "scheduled", "next_hour", "in_hand", "proving", "sends_going",
    )}  # fmt: skip
    return LaneWork(
        mode=Mode(found["mode"]),
        channel=Channel(found["channel"]),
        lane=Lane(found["lane"]),
        oldest_due_at=_moment(found["oldest_due_at"]),
        **counts,
    )


def _send(found: Mapping[str, Any]) -> OpenSend:
    return OpenSend(
        id=UUID(found["send_id"]),
        tenant=found["tenant"],
        name=found["name"],
        mode=Mode(found["mode"]),
        lane=Lane(found["lane"]),
        place=found["place"],
        accepted=found["accepted"],
        send_at=_moment(found["send_at"]),
        pause_reason=found["pause_reason"],
        paused_by=found["paused_by"],
        owed=int(found["owed"]),
        running=found["running"],
        others_running=found["others_running"],
        parts={Channel(channel): _part(part) for channel, part in found["channels"].items()},
    )


def _part(found: Mapping[str, Any]) -> Part:
    return Part(
        owed=int(found["owed"]),
        due=int(found["due"]),
        later=int(found["later"]),
        in_hand=int(found["in_hand"]),
        proving=int(found["proving"]),
        due_for=_moment(found["due_for"]),
        next_at=_moment(found["next_at"]),
        last_at=_moment(found["last_at"]),
        held=int(found["held"]),
        progress_at=_moment(found["progress_at"]),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
