"""Depth of the broker's queues: the only place that reads Dramatiq's keys."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.coordination import keys
from shared.coordination.redis import RedisLink, Script

_DEPTH = Script("queue_depth")
_MEND = Script("queue_mend")
#: Messages put back into one queue at once: a script holds everybody up.
_MEND_MOST = 10_000


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """
    Messages of one queue.

    `unacked` are fetched and not acknowledged, running ones among them. `dead` are the transport's, not the
    ledger's dead letters. `oldest_at` is when the message at the head was made (aware UTC); None where none waits.
    """

    queue: str
    ready: int
    unacked: int
    delayed: int
    dead: int
    oldest_at: datetime | None


class Queues:
    """Reads queues under a broker's namespace. Methods raise `RedisUnavailable`."""

    def __init__(self, link: RedisLink, *, namespace: str = keys.BROKER_NAMESPACE) -> None:
        self._link = link
        self._namespace = namespace

    def depths(self, queues: Sequence[str]) -> list[QueueDepth]:
        """The depth of each queue, all at one moment, in the order asked."""
        kinds = (keys.QUEUE, keys.QUEUE_MESSAGES, keys.DELAYED_MESSAGES, keys.DEAD_MESSAGES)
        names = [kind.name(self._namespace, queue=queue) for queue in queues for kind in kinds]
        if not names:
            return []
        answers = self._link.run(_DEPTH, keys=names)
        return [
            QueueDepth(
                queue=queue,
                ready=ready,
                unacked=max(0, everything - ready),
                delayed=delayed,
                dead=dead,
                oldest_at=_made_at(head),
            )
            for queue, (ready, everything, delayed, dead, head) in zip(queues, answers, strict=True)
        ]

    def existing(self, messages: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """
        Which of these (queue, redis message id) are ready or running, in one round trip.

        A message that is there may belong to a consumer that died a moment ago: it comes back to the next one that
        fetches once WORKER_HEARTBEAT_TIMEOUT_MS is over. One that is nobody's comes back by `mend`.
        """
        asked = list(messages)
        commands = [("HEXISTS", keys.QUEUE_MESSAGES.name(self._namespace, queue=queue), id_) for queue, id_ in asked]
        if not commands:
            return set()
        return {message for message, there in zip(asked, self._link.pipeline(commands), strict=True) if there}

    def mend(self, queue: str) -> int:
        """Put back what a queue keeps and nobody would ever fetch, since Redis lost a part of it; how many messages."""
        heartbeats = keys.BROKER_HEARTBEATS.name(self._namespace)
        fetched = keys.BROKER_FETCHED.name(self._namespace, broker="", queue="").removesuffix(".")
        names = [keys.QUEUE.name(self._namespace, queue=queue), keys.QUEUE_MESSAGES.name(self._namespace, queue=queue)]
        return int(self._link.run(_MEND, keys=(*names, heartbeats), args=(fetched, queue, _MEND_MOST)))


def _made_at(message: str) -> datetime | None:
    if not message:
        return None
    try:
        return datetime.fromtimestamp(json.loads(message)["message_timestamp"] / 1000, tz=UTC)
    except (ValueError, KeyError, TypeError):
        return None  # not a message of ours: its depth is true all the same
