"""The sections `channels` and `sends`: what is due, how fast it goes, what keeps it, and when it will be over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from admin.extensions import Services
from admin.monitoring.snapshot import Data, Section, Sources, add_section
from shared.accounts import cap_of, missing_settings, provider_name
from shared.domain.books import ChannelBooks, Reason
from shared.domain.masking import mask_text
from shared.domain.pace import SUSTAINED_MINUTES, TimeLeft, ahead_of, percent_done, sustained, time_left
from shared.domain.progress import HELD_WORDS, Doing, HeldBack, Kind, Standing, doing, held_back_by, paused_words
from shared.domain.states import Channel, Lane, Mode
from shared.jobs import queue_for
from shared.ledger import minutes, overview, pauses
from shared.ledger.minutes import Counts, Minute
from shared.ledger.overview import LaneWork, OpenSend, OpenWork
from shared.recovery.waits import Waits

#: Sends shown as in progress; the others are counted.
MOST_SENDS = 20
#: Two hours: the last one, and the one it is compared with.
MINUTES_READ = 120

Way = tuple[Mode, Channel]


@dataclass(frozen=True)
class Flow:
    """What both sections are made from, read together. `reasons` is None for a way while Redis is away."""

    work: OpenWork
    books: Mapping[tuple[UUID, Channel], ChannelBooks]
    paused: frozenset[str]
    reasons: Mapping[Way, Reason | None]
    knows_reasons: bool
    past: list[Minute]
    #: Of one send alone: what others send until it is over, by channel. None: `work` is everybody's.
    beside: Mapping[Channel, int] | None = None

    def settled_per_minute(self, way: Way) -> float | None:
        """How much leaves by any end, sustained; see `pace.sustained`."""
        return sustained(_full(self.past, way, lambda counts: counts.sent + counts.failed + counts.dead_lettered
                               + counts.unsure + counts.suppressed))  # fmt: skip

    def held_back(self, way: Way, lane: Lane) -> HeldBack | None:
        """What keeps the due work of a lane back on purpose."""
        return held_back_by(self.reasons.get(way), queue_paused=queue_for(way[1], lane).value in self.paused)

    def lanes_going(self, way: Way) -> list[LaneWork]:
        """The lanes of which nothing is kept back."""
        lanes = [lane for lane in self.work.lanes if (lane.mode, lane.channel) == way]
        return [lane for lane in lanes if self.held_back(way, lane.lane) is None]


def past_minutes(sources: Sources) -> list[Minute]:
    """What happened in the last two hours."""
    with sources.connection() as connection:
        return minutes.last(connection, minutes=MINUTES_READ)


def look(sources: Sources) -> Flow:
    """Read everything once."""
    with sources.connection() as connection:
        work = overview.open_work(connection, most=MOST_SENDS)
        books = overview.sums(connection, work.sends)
        paused = frozenset(pauses.paused(connection))
    ways = {(lane.mode, lane.channel) for lane in work.lanes} | {(Mode.LIVE, channel) for channel in Channel}
    waits = Waits(sources.link, sources.settings)
    reasons = {way: waits.shown(way[1], way[0]) for way in sorted(ways)}
    return Flow(work, books, paused, reasons, sources.link.reachable, sources.once(past_minutes))


def look_at(services: Services, send_id: UUID) -> tuple[Flow, OpenSend] | None:
    """Read one send's; None where nothing of it is owed."""
    with services.reading.transaction() as connection:
        work = overview.open_work(connection, most=1, only=send_id)
        if not work.sends:
            return None
        send = work.sends[0]
        paused = frozenset(pauses.paused(connection))
        beside = {}
        for channel, part in send.parts.items():
            lanes = [lane for lane in Lane if queue_for(channel, lane).value not in paused]
            beside[channel] = overview.owed_beside(
                connection, send_id=send_id, channel=channel, mode=send.mode, mine=part.owed, lanes=lanes
            )
        past = minutes.last(connection, minutes=SUSTAINED_MINUTES)
    waits = Waits(services.link, services.settings)
    reasons = {(send.mode, channel): waits.shown(channel, send.mode) for channel in send.parts}
    return Flow(work, {}, paused, reasons, services.link.reachable, past, beside), send


def sample_channels(sources: Sources) -> Data:
    """One row per channel; of test keys only where something is owed."""
    flow = sources.once(look)
    ways = [(Mode.LIVE, channel) for channel in Channel]
    ways += sorted({(lane.mode, lane.channel) for lane in flow.work.lanes if lane.mode is Mode.TEST and lane.owed})
    return {"channels": [_channel_row(flow, way, sources) for way in ways]}


def _channel_row(flow: Flow, way: Way, sources: Sources) -> Data:
    mode, channel = way
    lanes = [lane for lane in flow.work.lanes if (lane.mode, lane.channel) == way]
    going = flow.lanes_going(way)
    held = [(flow.held_back(way, lane.lane), lane.due) for lane in lanes]
    due = sum(lane.due for lane in going)
    kept: dict[HeldBack, int] = {}
    for why, count in held:
        if why and count:
            kept[why] = kept.get(why, 0) + count
    rate = flow.settled_per_minute(way)
    only_kept = bool(kept) and not due
    left = time_left(
        ahead=(sum(kept.values()) if only_kept else due) + sum(lane.in_hand for lane in lanes),
        per_minute=rate,
        held_back=HELD_WORDS[next(iter(kept))] if only_kept else None,
    )
    name = provider_name(sources.settings, channel, mode)
    word, kind = _provider_word(flow, way, sources)
    cap = cap_of(sources.settings, name)
    return {
        "mode": mode.value,
        "channel": channel.value,
        "provider": name,
        "due": due,
        "in_hand": sum(lane.in_hand for lane in lanes),
        "oldest_due_at": _iso(min((lane.oldest_due_at for lane in going if lane.oldest_due_at), default=None)),
        "per_minute": _full(flow.past, way, lambda counts: counts.sent)[-1],
        "sustained": sustained(_full(flow.past, way, lambda counts: counts.sent)),
        "clears": {"seconds": left.seconds, "words": left.words},
        "circuit": {"word": word, "kind": kind},
        "held_back": [{"why": HELD_WORDS[why], "count": count} for why, count in kept.items()],
        "at_cap": cap if flow.reasons.get(way) == "cap" else None,
        "later": sum(lane.later for lane in lanes),
        "paused": sum(lane.paused for lane in lanes),
        "scheduled": sum(lane.scheduled for lane in lanes),
        "next_hour": sum(lane.next_hour for lane in lanes),
        "proving": sum(lane.proving for lane in lanes),
        "owed": sum(lane.owed for lane in lanes),
    }


def _provider_word(flow: Flow, way: Way, sources: Sources) -> tuple[str, Kind]:
    mode, channel = way
    name = provider_name(sources.settings, channel, mode)
    if missing_settings(name, sources.settings):
        return ("not set up", "bad" if any((lane.mode, lane.channel) == way for lane in flow.work.lanes) else "off")
    if not flow.knows_reasons:
        return ("not known", "off")
    match flow.reasons.get(way):
        case "circuit":
            return ("open", "bad")
        case "isolated":
            return ("not set up right", "bad")
        case "hold":
            return ("held by an operator", "warn")
        case "gate":
            return ("told to slow down", "warn")
        case _:
            return ("closed", "ok")


def sample_sends(sources: Sources) -> Data:
    """The sends that owe most, those that may go first, the longest or unknown time left first."""
    flow = sources.once(look)
    rows = [_send_row(flow, send) for send in flow.work.sends]
    order = {"going": 0, "paused": 1, "scheduled": 2}
    left = {row["id"]: row["time_left"]["seconds"] for row in rows}
    rows.sort(key=lambda row: (order[row["place"]], left[row["id"]] is not None, -(left[row["id"]] or 0), -row["left"]))
    return {"sends": rows, "count": flow.work.count}


def _send_row(flow: Flow, send: OpenSend) -> Data:
    books = [flow.books[send.id, channel] for channel in send.parts if (send.id, channel) in flow.books]
    accepted = sum(send.accepted.values())
    left = send.owed
    state = doing(standing(flow, send))
    rest = send_time_left(flow, send)
    return {
        "id": str(send.id),
        "tenant": send.tenant,
        "name": mask_text(send.name) if send.name else None,
        "mode": send.mode.value,
        "place": send.place,
        "channels": sorted(send.accepted),
        "state": as_json(state),
        "accepted": accepted,
        "percent": percent_done(accepted - left, accepted),
        "sent": sum(each.sent for each in books),
        "failed": sum(each.failed + each.dead_lettered for each in books),
        "unsure": sum(each.unsure for each in books),
        "left": left,
        "per_minute": _share(flow, send),
        "time_left": {"seconds": rest.seconds, "words": rest.words},
    }


def as_json(state: Doing) -> Data:
    """A state as the snapshot carries it."""
    return {"word": state.word, "kind": state.kind, "note": state.note, "at": _iso(state.at)}


def standing(flow: Flow, send: OpenSend) -> Standing:
    """How a send stands, over all its channels."""
    parts = send.parts.values()
    moved = [at for part in parts for at in (part.progress_at, part.due_for) if at]
    held = [flow.held_back((send.mode, channel), send.lane) for channel, part in send.parts.items() if part.due]
    return Standing(
        place=send.place,
        accepted=sum(send.accepted.values()),
        due=sum(part.due for part in parts),
        in_hand=sum(part.in_hand for part in parts),
        later=sum(part.later for part in parts),
        proving=sum(part.proving for part in parts),
        at_work=send.running or any(part.held for part in parts),
        idle_s=(flow.work.read_at - max(moved)).total_seconds() if moved else 0.0,
        # One channel that goes is a send that goes.
        held_back=next(iter(held)) if held and all(held) else None,
        send_at=send.send_at,
        next_at=min((part.next_at for part in parts if part.next_at), default=None),
        paused=paused_words(send.paused_by, send.pause_reason),
    )


def send_time_left(flow: Flow, send: OpenSend) -> TimeLeft:
    """That of its slowest channel; a reason goes before a number, since nobody knows when it ends."""
    if send.place == "paused":
        return TimeLeft(None, "paused")
    if send.place == "scheduled":
        return TimeLeft(None, "not begun")
    if standing(flow, send).without_worker:
        return TimeLeft(None, "no worker")
    all_left = [_part_left(flow, send, channel) for channel in send.parts]
    unknown = [left for left in all_left if left.seconds is None]
    return unknown[0] if unknown else max(all_left, key=lambda left: left.seconds or 0)


def _part_left(flow: Flow, send: OpenSend, channel: Channel) -> TimeLeft:
    part, way = send.parts[channel], (send.mode, channel)
    held = flow.held_back(way, send.lane) if part.due else None
    last_s = (part.last_at - flow.work.read_at).total_seconds() if part.last_at else 0.0
    return time_left(
        ahead=_ahead(flow, send, channel) if part.due + part.in_hand else 0,
        per_minute=flow.settled_per_minute(way),
        held_back=HELD_WORDS[held] if held else None,
        not_before_s=last_s,
    )


def _ahead(flow: Flow, send: OpenSend, channel: Channel) -> int:
    """What leaves over the channel until the last of this send has."""
    part, way = send.parts[channel], (send.mode, channel)
    if flow.beside is not None:
        return part.owed + flow.beside[channel]
    others = [
        other.parts[channel].owed
        for other in flow.work.sends
        if other is not send
        and other.place == "going"
        and other.mode is send.mode
        and channel in other.parts
        and flow.held_back(way, other.lane) is None
    ]
    lanes = flow.lanes_going(way)
    # What is not among the sends read in full owes less than any of them.
    rest = max(0, sum(lane.due + lane.later + lane.in_hand for lane in lanes) - part.owed - sum(others))
    return ahead_of(part.owed, others, rest=rest)


def _share(flow: Flow, send: OpenSend) -> float | None:
    """Its part of its channels' pace: those that go take turns."""
    if send.place != "going" or standing(flow, send).without_worker:
        return None
    total = 0.0
    for channel, part in send.parts.items():
        if part.due + part.in_hand == 0 or (part.due and flow.held_back((send.mode, channel), send.lane)):
            continue
        rate = flow.settled_per_minute((send.mode, channel))
        if rate is None:
            return None
        taking_turns = sum(lane.sends_going for lane in flow.lanes_going((send.mode, channel)))
        total += rate / max(1, taking_turns)
    return total


def _full(past: list[Minute], way: Way, count: Callable[[Counts], int]) -> list[int]:
    """The full minutes of the last hour, oldest first."""
    found = {minute.ago: count(minute.counts) for minute in past if (minute.mode, minute.channel) == way}
    return [found.get(ago, 0) for ago in range(60, 0, -1)]


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


add_section(Section("channels", "postgres", sample_channels))
add_section(Section("sends", "postgres", sample_sends))
