"""
Queues, jobs, and the typed functions that enqueue them. Messages carry ids and a version, never content.

A message says only where to look; the ledger says what to do. Enqueue strictly after commit: whoever loses
the race between the two is found by the due-work actor.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID, uuid4

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import ConnectionClosed

from shared.coordination.keys import BROKER_FETCHED, QUEUE
from shared.domain.states import Channel, Lane

#: Version of the messages' arguments. A worker leaves a message of a version it does not know to the ledger.
MESSAGE_VERSION = 1
#: Seconds a broker command may take. Long enough for a fork of a busy Redis, far below any lease.
_SOCKET_TIMEOUT_S = 3.0
#: Milliseconds an idle consumer may wait before it looks again. A single send passes two queues, and somebody waits
#: for it; bulk and periodic work may begin half a second later, which keeps an idle fleet's commands few.
_IDLE_POLL_MS = 150
_IDLE_POLL_PATIENT_MS = 600


#: Messages that wait in `ops` before ticks are left out: some two minutes of them while nobody consumes.
_MOST_TICKS = 100
#: Seconds between two looks for messages that Redis counts as this process's and that it never received.
_LOOK_FOR_LOST_S = 30.0

_log = logging.getLogger(__name__)


#: Milliseconds that the transport keeps what it could not run (an unknown actor, an actor's exception), for people to
#: look at. The work itself is the ledger's, which finds it without them.
_DEAD_MESSAGES_KEPT_MS = 24 * 3600 * 1000


class QueueName(StrEnum):
    """Every queue; which process consumes which is in the Procfile."""

    INGEST = "ingest"
    EMAIL = "email"
    SMS = "sms"
    EMAIL_BULK = "email_bulk"
    SMS_BULK = "sms_bulk"
    OPS = "ops"


class JobName(StrEnum):
    """Every actor, by the name its messages carry."""

    INGEST = "ingest"
    WORK_CHAIN = "work_chain"
    DUE_WORK = "due_work"
    HOUSEKEEPING = "housekeeping"
    OPERATE = "operate"
    RECONCILE = "reconcile"
    PROVE = "prove"
    DIGEST = "digest"
    RETENTION = "retention"


#: Queues that may be paused. Not `ops`: recovery, timers, and the operations of people travel on it.
PAUSABLE = frozenset(QueueName) - {QueueName.OPS}
_QUICK = frozenset({QueueName.INGEST, QueueName.EMAIL, QueueName.SMS})


def queue_for(channel: Channel, lane: Lane) -> QueueName:
    """The queue of a channel's chains."""
    return QueueName(channel.value if lane is Lane.SINGLE else f"{channel.value}_bulk")


class _Consumer(_RedisConsumer):
    """
    Treats a Redis time-out and a refused command like a lost connection, and takes back what was lost with it.

    Dramatiq catches `redis.ConnectionError` alone; redis-py's `TimeoutError` and `ResponseError` (read-only,
    out of memory) would end the consumer's thread's turn with the acknowledgement lost (dramatiq#894). Ack,
    nack and requeue may be repeated safely. A fetch may not: when its answer is lost, and when a consumer ends
    with messages in its cache, Redis counts them as this process's, which knows nothing of them; they would
    come back when it dies. So what Redis says we fetched is compared with what we have, now and then.
    """

    def __init__(self, broker: Any, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]
        self._look_at = 0.0

    def ack(self, message: Any) -> None:
        self._guarded(super().ack, message)
        self._in_hand.discard(message.options["redis_message_id"])

    def nack(self, message: Any) -> None:
        self._guarded(super().nack, message)
        self._in_hand.discard(message.options["redis_message_id"])

    def requeue(self, messages: Any) -> None:
        messages = list(messages)
        self._guarded(super().requeue, messages)
        self._in_hand.difference_update(message.options["redis_message_id"] for message in messages)

    def __next__(self) -> Any:
        if self.queue_name in self.broker.paused:
            time.sleep(self.timeout / 1000)
            return None
        if not self.message_cache and time.monotonic() >= self._look_at:
            self._guarded(self._take_back_lost)
        message = self._guarded(super().__next__)
        if message is not None:
            self._in_hand.add(message.options["redis_message_id"])
        return message

    @property
    def _in_hand(self) -> set[str]:
        # Of the broker, since a consumer that lost its connection is replaced while its messages are worked on.
        in_hand: set[str] = self.broker.in_hand[self.queue_name]
        return in_hand

    def _take_back_lost(self) -> None:
        key = BROKER_FETCHED.name(self.broker.namespace, broker=self.broker.broker_id, queue=self.queue_name)
        fetched = {member.decode() for member in self.broker.client.smembers(key)}
        lost = fetched - self._in_hand
        if lost:
            _log.warning("fetched_messages_taken_back", extra={"queue": self.queue_name, "messages": len(lost)})
            self.broker.do_requeue(self.queue_name, *lost)
        self._look_at = time.monotonic() + _LOOK_FOR_LOST_S

    @staticmethod
    def _guarded(call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]


class Broker(RedisBroker):
    """Dramatiq's Redis broker; a message may choose its own id in Redis, so that the ledger can name it first."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)  # type: ignore[no-untyped-call]
        #: By queue, ids in Redis of the messages that consumers of this process gave out and that are not ended yet.
        self.in_hand: defaultdict[str, set[str]] = defaultdict(set)
        #: Queues that an operator paused: nothing more is fetched from them.
        self.paused: frozenset[str] = frozenset()

    @property
    def consumer_class(self) -> type[_Consumer]:
        """The consumer that survives Redis time-outs."""
        return _Consumer

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 1000) -> Any:
        """Consume a queue; how long an idle consumer waits before it looks again depends on who waits for it."""
        idle_ms = _IDLE_POLL_MS if queue_name in _QUICK else _IDLE_POLL_PATIENT_MS
        return super().consume(queue_name, prefetch, min(timeout, idle_ms))

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue without the delay queue that dramatiq pairs with it: nothing is ever delayed."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def waiting(self, queue_name: str) -> int:
        """How many messages of a queue nobody has fetched. Raises redis.RedisError."""
        return int(self.client.llen(QUEUE.name(self.namespace, queue=queue_name)))

    def enqueue(self, message: dramatiq.Message[Any], *, delay: int | None = None) -> dramatiq.Message[Any]:
        """
        Put a message on its queue under the id in its option `token`, or a new one.

        Raises: ValueError for a delay; redis.RedisError when Redis is away.
        """
        if delay is not None:
            raise ValueError("no message is ever delayed: a timer is a row in Postgres (ADR-0002)")
        message = message.copy(options={"redis_message_id": message.options.get("token") or str(uuid4())})
        self.emit_before("enqueue", message, delay)
        self.do_enqueue(message.queue_name, message.options["redis_message_id"], message.encode())
        self.emit_after("enqueue", message, delay)
        return message


def make_broker(
    redis_url: str, *, namespace: str, heartbeat_timeout_ms: int, middleware: list[dramatiq.Middleware] | None = None
) -> Broker:
    """
    A broker over one connection pool.

    `url` pools do not repeat commands behind our back (redis-py's keyword clients do, EVALSHA included).
    Maintenance runs with every command: it only costs when a worker has died, and a dead worker's messages
    then come back `heartbeat_timeout_ms` later.
    """
    pool = redis.ConnectionPool.from_url(
        redis_url, socket_timeout=_SOCKET_TIMEOUT_S, socket_connect_timeout=_SOCKET_TIMEOUT_S, max_connections=200
    )
    return Broker(
        client=redis.Redis(connection_pool=pool),
        namespace=f"{namespace}:broker",
        heartbeat_timeout=heartbeat_timeout_ms,
        dead_message_ttl=_DEAD_MESSAGES_KEPT_MS,
        maintenance_chance=1_000_000,
        middleware=middleware if middleware is not None else [],
    )


class CountsMessages(dramatiq.Middleware):
    """Tells `count(queue, what)` of each message given to a queue, finished or failed, in whatever process."""

    def __init__(self, count: Callable[[str, Literal["added", "done", "failed"]], None]) -> None:
        self._count = count

    def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """A message was given to its queue."""
        self._count(message.queue_name, "added")

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:  # noqa: ARG002
        """An actor returned, or raised."""
        self._count(message.queue_name, "done" if exception is None else "failed")

    def after_skip_message(self, broker: Any, message: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """A message was set aside without being run."""
        self._count(message.queue_name, "failed")


class Jobs:
    """
    Typed enqueueing over a broker; works by name, without importing an actor.

    Every function raises redis.RedisError when Redis is away: the caller decides whether that matters.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def ingest(self, send_id: UUID, *, message_id: UUID | None = None) -> None:
        """
        Ask for a send's fan-out; call after its acceptance is committed.

        `message_id` names the message in Redis, for whoever asks later whether it still waits.
        """
        self._enqueue(QueueName.INGEST, JobName.INGEST, message_id=message_id, send_id=str(send_id))

    def work_chain(self, *, queue: QueueName, send_id: UUID, channel: Channel, chain_no: int, token: UUID) -> None:
        """Hand a chain to the queue under its token; call after the token is committed."""
        self._enqueue(
            queue,
            JobName.WORK_CHAIN,
            message_id=token,
            token=str(token),
            send_id=str(send_id),
            channel=channel.value,
            chain_no=chain_no,
        )

    def digest_run(self, run_id: UUID) -> None:
        """Have a worker do a dispatch, or a test of a channel, that a person asked for; call after its commit."""
        self._enqueue(QueueName.OPS, JobName.DIGEST, run=str(run_id))

    def periodic(self, name: JobName, *, slot: int) -> bool:
        """
        Run a periodic job for a tick that was claimed in Postgres; False where nobody works off those before it.

        Ticks are level-triggered: one does what a hundred that waited would do.
        """
        if self.broker.waiting(QueueName.OPS.value) >= _MOST_TICKS:
            return False
        self._enqueue(QueueName.OPS, name, slot=slot)
        return True

    def _enqueue(
        self, queue: QueueName, job: JobName, *, message_id: UUID | None = None, **arguments: str | int
    ) -> None:
        options = {"token": str(message_id)} if message_id else {}
        self.broker.enqueue(
            dramatiq.Message(
                queue_name=queue.value,
                actor_name=job.value,
                args=(),
                kwargs={"v": MESSAGE_VERSION, **arguments},
                options=options,
            )
        )
