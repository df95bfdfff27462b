"""Ingest: an accepted send is scheduled, or starts its chains."""

import logging
from uuid import UUID, uuid4

import dramatiq
import redis

from shared import log
from shared.domain.states import Channel, Lane, SendStatus
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName, queue_for
from shared.ledger import chains
from shared.ledger.chains import ChainKey
from shared.settings import Settings
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)


def chains_worth_starting(settings: Settings, *, lane: Lane, due_batches: int) -> int:
    """How many chains a channel's due batches can keep busy: a window each, at most CHAINS_PER_SEND."""
    if lane is Lane.SINGLE:
        return 1
    windows = -(-due_batches * settings.batch_size // settings.window_max)
    return max(1, min(settings.chains_per_send, windows))


def start_chain(runtime: Runtime, jobs: Jobs, key: ChainKey, *, lane: Lane, old_token: UUID | None = None) -> bool:
    """Write a chain down and enqueue its message; False when somebody else did, or Redis is away."""
    token = uuid4()
    with runtime.ledger.autocommit() as connection:
        if not chains.put(connection, key, token=token, old_token=old_token):
            return False
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


def ingest_send(runtime: Runtime, jobs: Jobs, send_id: UUID) -> None:
    """Start a send, or leave it to its schedule. Running it again changes nothing."""
    with runtime.ledger.autocommit() as connection:
        status = chains.start_send(connection, send_id)
        send = chains.load_send(connection, send_id) if status is SendStatus.SENDING else None
    if send is None:
        return
    for name, count in send.accepted.items():
        batches = -(-count // runtime.settings.batch_size)
        for chain_no in range(chains_worth_starting(runtime.settings, lane=send.lane, due_batches=batches)):
            start_chain(runtime, jobs, ChainKey(send_id, Channel(name), chain_no), lane=send.lane)


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    jobs = Jobs(broker)

    @dramatiq.actor(broker=broker, actor_name=JobName.INGEST.value, queue_name=QueueName.INGEST.value)
    def ingest(*, v: int, send_id: str) -> None:
        if v == MESSAGE_VERSION:
            with log.bind(send_id=send_id):
                ingest_send(runtime, jobs, UUID(send_id))
