"""How the owed work flows: what is due, how fast it goes, what keeps it, and when it will be over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from admin.extensions import Services
from admin.monitoring.snapshot import Sources
from shared.domain.books import ChannelBooks, Reason
from shared.domain.pace import SUSTAINED_MINUTES, TimeLeft, ahead_of, quiet_minutes, sustained, time_left
from shared.domain.progress import HELD_WORDS, HeldBack, Standing, held_back_by, paused_words
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

#: Said instead of a time left while nobody is at what may go.
NO_WORKER = "no worker"

Way = tuple[Mode, Channel]


@dataclass(frozen=True)
class Flow:
    """What is owed, read together. `reasons` is None for a way while Redis is away."""

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
        return sustained(self._full_minutes(way, _settled), running=self._minute(way, 0, _settled))

    def sent_per_minute(self, way: Way) -> float | None:
        """Likewise of what was sent alone."""
        return sustained(self._full_minutes(way, _sent), running=self._minute(way, 0, _sent))

    def sent_last_minute(self, way: Way) -> int:
        """What was sent in the last full minute."""
        return self._minute(way, 1, _sent)

    def time_left(self, way: Way, *, ahead: int, held_back: HeldBack | None, not_before_s: float = 0) -> TimeLeft:
        """When the last of `ahead` will have left by this way; see `pace.time_left`."""
        return time_left(
            ahead=ahead,
            per_minute=self.settled_per_minute(way),
            quiet_min=quiet_minutes(self._full_minutes(way, _settled)),
            held_back=HELD_WORDS[held_back] if held_back else None,
            not_before_s=not_before_s,
        )

    def _full_minutes(self, way: Way, count: Callable[[Counts], int]) -> list[int]:
        return [self._minute(way, ago, count) for ago in range(SUSTAINED_MINUTES, 0, -1)]

    def _minute(self, way: Way, ago: int, count: Callable[[Counts], int]) -> int:
        found = (each for each in self.past if each.ago == ago and (each.mode, each.channel) == way)
        return sum(count(each.counts) for each in found)

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
        others_at_work=send.others_running,
        idle_s=(flow.work.read_at - max(moved)).total_seconds() if moved else 0.0,
        # One channel that goes is a send that goes.
        held_back=next(iter(held)) if held and all(held) else None,
        send_at=send.send_at,
        next_at=min((part.next_at for part in parts if part.next_at), default=None),
        paused=paused_words(send.paused_by, send.pause_reason),
    )


def nobody_at_work(flow: Flow, way: Way) -> bool:
    """Whether no worker is at any of the sends of which something may go by this way."""
    sends = [
        send
        for send in flow.work.sends
        if send.mode is way[0]
        and way[1] in send.parts
        and send.parts[way[1]].due
        and not flow.held_back(way, send.lane)
    ]
    return bool(sends) and all(standing(flow, send).without_worker for send in sends)


def send_time_left(flow: Flow, send: OpenSend) -> TimeLeft:
    """That of its slowest channel; a reason goes before a number, since nobody knows when it ends."""
    if send.place == "paused":
        return TimeLeft(None, "paused")
    if send.place == "scheduled":
        return TimeLeft(None, "not begun")
    if standing(flow, send).without_worker:
        return TimeLeft(None, NO_WORKER)
    all_left = [_part_left(flow, send, channel) for channel in send.parts]
    unknown = [left for left in all_left if left.seconds is None]
    return unknown[0] if unknown else max(all_left, key=lambda left: left.seconds or 0)


def _part_left(flow: Flow, send: OpenSend, channel: Channel) -> TimeLeft:
    part, way = send.parts[channel], (send.mode, channel)
    held = flow.held_back(way, send.lane) if part.due else None
    last_s = (part.last_at - flow.work.read_at).total_seconds() if part.last_at else 0.0
    ahead = _ahead(flow, send, channel) if part.due + part.in_hand else 0
    return flow.time_left(way, ahead=ahead, held_back=held, not_before_s=last_s)


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


def share(flow: Flow, send: OpenSend) -> float | None:
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


def _sent(counts: Counts) -> int:
    return counts.sent


def _settled(counts: Counts) -> int:
    return counts.sent + counts.failed + counts.dead_lettered + counts.unsure + counts.suppressed
