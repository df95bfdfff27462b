"""Ingest: an accepted send is scheduled, or starts its chains."""

from uuid import UUID

import dramatiq

from shared import log
from shared.domain.states import Channel, SendStatus
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName
from shared.ledger import chains
from shared.ledger.chains import ChainKey
from shared.recovery.starting import chains_worth_starting, start_chain
from workers.middleware.runtime import Runtime


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
            start_chain(runtime.ledger, jobs, ChainKey(send_id, Channel(name), chain_no), lane=send.lane)


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    jobs = Jobs(broker)

    @dramatiq.actor(broker=broker, actor_name=JobName.INGEST.value, queue_name=QueueName.INGEST.value)
    def ingest(*, v: int, send_id: str) -> None:
        if v == MESSAGE_VERSION:
            with log.bind(send_id=send_id):
                ingest_send(runtime, jobs, UUID(send_id))
