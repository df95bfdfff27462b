"""How often each message was begun without being ended: a message that kills its worker must not do so for ever."""

from shared.coordination import keys
from shared.coordination.redis import RedisLink

#: Seconds that a count is kept after the latest start; a message waits for its next worker far shorter than this.
KEPT_S = 24 * 3600


class MessageStarts:
    """Counts by the message's id in Redis. Methods raise `RedisUnavailable`."""

    def __init__(self, link: RedisLink, *, namespace: str = keys.NAMESPACE) -> None:
        self._link = link
        self._namespace = namespace

    def begin(self, redis_message_id: str) -> int:
        """Note that a worker begins a message; how often that was, this time included."""
        key = keys.MESSAGE_STARTS.name(self._namespace, message=redis_message_id)
        count, _ = self._link.pipeline([("INCR", key), ("EXPIRE", key, KEPT_S)])
        return int(count)

    def end(self, redis_message_id: str) -> None:
        """A worker ended the message, well or not: it will not come again under this id."""
        self._link.pipeline([("DEL", keys.MESSAGE_STARTS.name(self._namespace, message=redis_message_id))])
