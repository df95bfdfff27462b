"""The sections `channels` and `sends`: how the owed work flows, as the Overview tells it."""

from datetime import datetime

from admin.monitoring.flow import NO_WORKER, Flow, Way, look, nobody_at_work, send_time_left, share, standing
from admin.monitoring.snapshot import Data, Section, Sources, add_section
from shared.accounts import cap_of, missing_settings, provider_name
from shared.domain.masking import mask_text
from shared.domain.pace import TimeLeft, percent_done
from shared.domain.progress import HELD_WORDS, Doing, HeldBack, Kind, doing
from shared.domain.states import Channel, Mode
from shared.ledger.overview import OpenSend


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
    only_kept = bool(kept) and not due
    left = flow.time_left(
        way,
        ahead=(sum(kept.values()) if only_kept else due) + sum(lane.in_hand for lane in lanes),
        held_back=next(iter(kept)) if only_kept else None,
    )
    if due and nobody_at_work(flow, way):
        left = TimeLeft(None, NO_WORKER)
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
        "per_minute": flow.sent_last_minute(way),
        "sustained": flow.sent_per_minute(way),
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
        "unsure": sum(each.unsure + each.proving for each in books),
        "left": left,
        "per_minute": share(flow, send),
        "time_left": {"seconds": rest.seconds, "words": rest.words},
    }


def as_json(state: Doing) -> Data:
    """A state as the snapshot carries it."""
    return {"word": state.word, "kind": state.kind, "note": state.note, "at": _iso(state.at)}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


add_section(Section("channels", "postgres", sample_channels))
add_section(Section("sends", "postgres", sample_sends))
