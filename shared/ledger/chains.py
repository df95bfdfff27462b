"""Sends on their way and the chains that work on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_LOAD = statement("load_send")
_START = statement("start_send")
_START_SCHEDULED = statement("start_scheduled_sends")
_PUT = statement("put_chain")
_BEGIN = statement("begin_chain")
_HAND_OVER = statement("hand_over_chain")
_KEEP = statement("keep_chain")
_END = statement("end_chain")
_FORGET = statement("forget_chains")
_DUE = statement("find_due_sends")
_CHAINS = statement("find_chains")
_COMPLETE = statement("complete_send")
_FINISHED = statement("find_finished_sends")
_PAUSE = statement("pause_send")
_PAUSE_POISONED = statement("pause_poisoned_send")


@dataclass(frozen=True, slots=True)
class SendContent:
    """What a worker needs of a send. `owed_since`: acceptance, schedule, a resume or a requeue, the latest."""

    id: UUID
    tenant_id: int
    mode: Mode
    lane: Lane
    content: dict[str, Any]
    params: dict[str, Any]
    accepted: dict[str, int]
    created_at: datetime
    owed_since: datetime
    email_from: str | None
    sms_from: str | None


@dataclass(frozen=True, slots=True)
class ChainKey:
    """Which chain: one of `chains_per_send` on a channel of a send."""

    send_id: UUID
    channel: Channel
    chain_no: int

    def parameters(self, **more: object) -> dict[str, object]:
        """The key as statement parameters."""
        return {"send_id": self.send_id, "channel": self.channel.value, "chain_no": self.chain_no, **more}


@dataclass(frozen=True, slots=True)
class ChainState:
    """A chain as the due-work actor sees it; `queued_s` seconds since its message was (to be) enqueued."""

    key: ChainKey
    token: UUID
    running: bool
    holder_lives: bool
    queued_s: float


@dataclass(frozen=True, slots=True)
class DueSend:
    """A channel of a send with free due batches, counted up to a limit."""

    send_id: UUID
    lane: Lane
    mode: Mode
    channel: Channel
    batches: int


def load_send(connection: Connection, send_id: UUID) -> SendContent | None:
    """The content of a send, None when there is no such send."""
    row = connection.execute(_LOAD, {"send_id": send_id}).fetchone()
    if row is None:
        return None
    id_, tenant_id, mode, lane, *rest = row
    return SendContent(id_, tenant_id, Mode(mode), Lane(lane), *rest)


def start_send(connection: Connection, send_id: UUID) -> SendStatus | None:
    """Make an accepted send `scheduled` or `sending`; None when it was past that already."""
    row = connection.execute(_START, {"send_id": send_id}).fetchone()
    return None if row is None else SendStatus(row[0])


def start_scheduled(connection: Connection) -> list[UUID]:
    """Start every scheduled send whose time has come; their ids."""
    return [row[0] for row in connection.execute(_START_SCHEDULED)]


def put(connection: Connection, key: ChainKey, *, token: UUID, old_token: UUID | None) -> bool:
    """Create or replace a chain under `token`; False when somebody else did meanwhile."""
    parameters = key.parameters(token=token, old_token=old_token)
    return connection.execute(_PUT, parameters).fetchone() is not None


def begin(connection: Connection, key: ChainKey, *, token: UUID, worker: UUID) -> bool:
    """Take up a chain's message; False when the message is stale or somebody live works on the chain."""
    return connection.execute(_BEGIN, key.parameters(token=token, worker=worker)).fetchone() is not None


def hand_over(connection: Connection, key: ChainKey, *, token: UUID, new_token: UUID, worker: UUID) -> bool:
    """Leave the chain to a successor under `new_token`, which the caller enqueues after commit."""
    parameters = key.parameters(token=token, new_token=new_token, worker=worker)
    return connection.execute(_HAND_OVER, parameters).fetchone() is not None


def keep(connection: Connection, key: ChainKey, *, token: UUID, worker: UUID) -> bool:
    """Take back a chain whose successor could not be enqueued."""
    return connection.execute(_KEEP, key.parameters(token=token, worker=worker)).fetchone() is not None


def end(connection: Connection, key: ChainKey, *, token: UUID) -> None:
    """Forget a chain that finds nothing due."""
    connection.execute(_END, key.parameters(token=token))


def forget(connection: Connection) -> int:
    """Remove chains that nobody will take up, an hour after their message was queued; the number removed."""
    return connection.execute(_FORGET).rowcount


def find_due(
    connection: Connection, *, after: UUID, after_channel: Channel = Channel.SMS, most: int, limit: int
) -> list[DueSend]:
    """A page of sends with free due batches, after a send and channel; batches are counted up to `most`."""
    parameters = {"after": after, "after_channel": after_channel.value, "most": most, "limit": limit}
    rows = connection.execute(_DUE, parameters)
    return [DueSend(id_, Lane(lane), Mode(mode), Channel(channel), n) for id_, lane, mode, channel, n in rows]


def find(connection: Connection, send_ids: list[UUID]) -> list[ChainState]:
    """The chains of these sends."""
    return [
        ChainState(ChainKey(send_id, Channel(channel), chain_no), token, running, lives, queued_s)
        for send_id, channel, chain_no, token, running, lives, queued_s in connection.execute(
            _CHAINS, {"send_ids": send_ids}
        )
    ]


def complete(connection: Connection, send_id: UUID) -> bool:
    """Finish a send that has nothing open; False when it is not so."""
    return connection.execute(_COMPLETE, {"send_id": send_id}).fetchone() is not None


def find_finished(connection: Connection, *, limit: int) -> list[UUID]:
    """Sends in progress that have nothing open."""
    return [row[0] for row in connection.execute(_FINISHED, {"limit": limit})]


def pause(connection: Connection, send_id: UUID, *, reason: str) -> bool:
    """Pause a send in progress; False when it was not in progress."""
    return connection.execute(_PAUSE, {"send_id": send_id, "reason": reason}).fetchone() is not None


def pause_poisoned(connection: Connection, send_id: UUID, *, signature: str, most: int, reason: str) -> bool:
    """Pause a send once `most` of its recipients met the same message fault; False below that."""
    parameters = {"send_id": send_id, "signature": signature, "most": most, "reason": reason}
    return connection.execute(_PAUSE_POISONED, parameters).fetchone() is not None
