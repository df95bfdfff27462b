"""Chains: one more for every channel of a send with due batches, unless enough of them live."""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import redis

from shared.coordination.queue_depth import Queues
from shared.domain.states import Channel, Lane, SendEventKind
from shared.jobs import Jobs, queue_for
from shared.ledger import chains, pauses, send_events
from shared.ledger.chains import ChainKey, ChainState, DueSend
from shared.ledger.db import ROW_BROKEN, Ledger
from shared.recovery.waits import Waits
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Sends looked at in one statement.
_PAGE = 500
#: Seconds a chain's message may be missing from Redis: between its commit and its enqueueing.
_ENQUEUE_GRACE_S = 5.0
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Started:
    """A chain whose message was enqueued. `rebuilt`: it had a message before, which is lost, or a holder, who died."""

    key: ChainKey
    lane: Lane
    rebuilt: bool


def chains_worth_starting(settings: Settings, *, lane: Lane, due_batches: int) -> int:
    """How many chains a channel's due batches can keep busy: a window each, at most CHAINS_PER_SEND."""
    if lane is Lane.SINGLE:
        return 1
    windows = -(-due_batches * settings.batch_size // settings.window_max)
    return max(1, min(settings.chains_per_send, windows))


def start_chain(ledger: Ledger, jobs: Jobs, key: ChainKey, *, lane: Lane, old_token: UUID | None = None) -> bool:
    """Write a chain down and enqueue its message; False when somebody else did, or Redis is away."""
    token = uuid4()
    with ledger.autocommit() as connection:
        if not chains.put(connection, key, token=token, old_token=old_token):
            return False
    return _enqueue(jobs, key, lane=lane, token=token)


def _enqueue(jobs: Jobs, key: ChainKey, *, lane: Lane, token: UUID) -> bool:
    """Enqueue the message of a chain that is written down; False when Redis is away."""
    try:
        jobs.work_chain(
            queue=queue_for(key.channel, lane),
            send_id=key.send_id,
            channel=key.channel,
            chain_no=key.chain_no,
            token=token,
        )
    except redis.RedisError as error:
        _log.warning("chain_not_enqueued", extra={"send_id": str(key.send_id), "error": type(error).__name__})
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Missing:
    key: ChainKey
    lane: Lane
    old_token: UUID | None


@dataclass(frozen=True, slots=True)
class ChainStarter:
    """Compares what is due with the chains that live, and starts the missing ones. Raises RedisUnavailable."""

    ledger: Ledger
    queues: Queues
    jobs: Jobs
    settings: Settings

    def start_missing(self, waits: Waits, *, stop: Callable[[], bool]) -> list[Started]:
        """
        Go through every send with due batches, a page at a time; the chains started.

        A channel whose provider is held back, or whose queue is paused, is left alone: its wait is nobody's failure.
        """
        started: list[Started] = []
        after, after_channel = _FIRST, Channel.SMS
        with self.ledger.autocommit() as connection:
            paused = pauses.paused(connection)
        while True:
            with self.ledger.autocommit() as connection:
                due = chains.find_due(
                    connection, after=after, after_channel=after_channel, most=self._most(), limit=_PAGE
                )
                states = chains.find(connection, list({item.send_id for item in due}))
            if not due:
                return started
            known = defaultdict(list)
            for state in states:
                known[state.key.send_id, state.key.channel].append(state)
            there = self._still_queued(states, {item.send_id: item for item in due})
            missing: list[_Missing] = []
            for item in due:
                if queue_for(item.channel, item.lane) not in paused and not waits.held_back(item.channel, item.mode):
                    missing += self._missing(item, known[item.send_id, item.channel], there)
            begun, all_told = self._start(missing)
            started += begun
            if len(due) < _PAGE or not all_told or stop():
                return started
            after, after_channel = due[-1].send_id, due[-1].channel

    def _most(self) -> int:
        return -(-self.settings.chains_per_send * self.settings.window_max // self.settings.batch_size)

    def _still_queued(self, states: list[ChainState], due: dict[UUID, DueSend]) -> set[str]:
        """Tokens of waiting chains whose messages Redis still has."""
        waiting = [
            (queue_for(state.key.channel, due[state.key.send_id].lane).value, str(state.token))
            for state in states
            if not state.running and state.key.send_id in due
        ]
        return {token for _, token in self.queues.existing(waiting)}

    def _start(self, missing: list[_Missing]) -> tuple[list[Started], bool]:
        """
        Start the chains of a page; those started, and whether Redis took all their messages.

        The rest, when Redis goes away, is found missing like any lost message.
        """
        started: list[Started] = []
        for each, token in self._write(missing):
            if not _enqueue(self.jobs, each.key, lane=each.lane, token=token):
                return started, False
            started.append(Started(each.key, each.lane, rebuilt=each.old_token is not None))
        return started, True

    def _write(self, missing: list[_Missing]) -> list[tuple[_Missing, UUID]]:
        """
        Write chains down in one commit, after a fault one by one; those that are ours to enqueue, with their tokens.

        After an outage a hundred thousand single sends wait, and a commit for each would keep this thread for minutes.
        """
        if not missing:
            return []
        written: list[tuple[_Missing, UUID]] = []
        try:
            with self.ledger.transaction() as connection:
                for each in missing:
                    token = uuid4()
                    if chains.put(connection, each.key, token=token, old_token=each.old_token):
                        written.append((each, token))
                rebuilt = [each.key.send_id for each, _ in written if each.old_token is not None]
                send_events.note_all(connection, rebuilt, SendEventKind.MESSAGE_LOST)
        except ROW_BROKEN:
            if len(missing) > 1:
                return [pair for each in missing for pair in self._write([each])]
            _log.exception("chain_not_started", extra={"send_id": str(missing[0].key.send_id)})
            return []
        return written

    def _missing(self, item: DueSend, states: list[ChainState], there: set[str]) -> list[_Missing]:
        live = {
            state.key.chain_no
            for state in states
            if state.holder_lives
            or (not state.running and (state.queued_s < _ENQUEUE_GRACE_S or str(state.token) in there))
        }
        tokens = {state.key.chain_no: state.token for state in states}
        wanted = chains_worth_starting(self.settings, lane=item.lane, due_batches=item.batches)
        missing = []
        for chain_no in range(self.settings.chains_per_send):
            if len(live) >= wanted:
                break
            if chain_no not in live:
                live.add(chain_no)
                key = ChainKey(item.send_id, item.channel, chain_no)
                missing.append(_Missing(key, item.lane, tokens.get(chain_no)))
        return missing
