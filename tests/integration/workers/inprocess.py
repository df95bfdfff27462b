"""
A worker process inside the test's own: the real broker, middleware and actors, its messages worked off one by one.

Everything of a worker but dramatiq's threads: what a test sees is in the order it asked for.
"""

from types import TracebackType
from typing import Any, Self

import dramatiq

from shared.coordination import keys
from shared.domain.states import Channel, Lane, Mode
from shared.jobs import JobName, Jobs, QueueName
from shared.ledger.chains import ChainKey
from shared.recovery.starting import start_chain
from shared.settings import Settings, load
from tests.support.factories import MadeSend
from workers.actors import chain, digest, due_work, housekeeping, ingest, operate, prove, reconcile, retention
from workers.actors.senders import Senders
from workers.broker import make_worker


def make_settings(database_url: str, redis_url: str, **settings: object) -> Settings:
    defaults: dict[str, object] = {
        "email_provider": "sandbox",
        "sms_provider": "sandbox",
        "email_from": "Acme <news@example.com>",
        "lease_ms": 20_000,
        "lease_renew_ms": 500,
        "window_max": 25,
    }
    return load(database_url=database_url, redis_url=redis_url, **{**defaults, **settings})


class InProcess:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.broker, self.runtime = make_worker(settings, process="test")
        for module in (ingest, chain, due_work, housekeeping, reconcile, operate, prove, digest, retention):
            module.register(self.broker, self.runtime)
        self.jobs = Jobs(self.broker)

    def __enter__(self) -> Self:
        self.broker.emit_before("worker_boot", None)
        assert self.runtime.lease.wait(20)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.runtime.after_worker_shutdown(self.broker, None)
        self.broker.client.connection_pool.disconnect()

    def call(self, job: JobName, **arguments: Any) -> None:
        """Run an actor on arguments of the test's own."""
        self.broker.get_actor(job.value).fn(**{"v": 1, **arguments})

    def messages(self, queue: QueueName) -> list[dramatiq.Message[Any]]:
        """The messages waiting in a queue, which keeps them."""
        key = f"{self.broker.namespace}:{queue}"
        client: Any = self.broker.client
        return [
            dramatiq.Message.decode(client.hget(f"{key}.msgs", redis_message_id))
            for redis_message_id in client.lrange(key, 0, -1)
        ]

    def work_off(self, *queues: QueueName, most: int = 100) -> int:
        """Take messages and run them until these queues (all but `ops`) are empty; how many there were."""
        done = 0
        wanted = queues or tuple(queue for queue in QueueName if queue is not QueueName.OPS)
        found = True
        while found and done < most:
            found = False
            for queue in wanted:
                consumer = self.broker.consume(queue.value, prefetch=1, timeout=1)
                while done < most and (message := next(consumer)) is not None:
                    found = True
                    done += 1
                    try:
                        self.broker.get_actor(message.actor_name).fn(*message.args, **message.kwargs)
                    finally:
                        consumer.ack(message)
                consumer.close()
        return done

    def tick(self) -> None:
        """One run of the due work."""
        self.call(JobName.DUE_WORK, slot=1)

    def reconcile(self) -> None:
        """One pass of the reconciler."""
        self.call(JobName.RECONCILE, slot=1)

    def prove(self) -> None:
        """One run of the prover."""
        self.call(JobName.PROVE, slot=1)

    def credential(self) -> str:
        """Under which the ledger keeps the state of the live e-mail provider."""
        return Senders(self.runtime).sender(Channel.EMAIL, Mode.LIVE).provider.credential

    def pass_gate(self, channel: Channel) -> float:
        """Let the time of the live provider's gate pass; how many seconds it would have been closed."""
        provider = Senders(self.runtime).sender(channel, Mode.LIVE).provider
        part = keys.provider_part(provider.name, provider.credential)
        gate, growth = (key.name(self.settings.redis_namespace, provider=part) for key in (keys.GATE, keys.GATE_GROWTH))
        link = self.runtime.link
        closed_ms, last_ms = (int(answer or 0) for answer in link.pipeline([("PTTL", gate), ("GET", growth)]))
        link.pipeline([("DEL", gate), ("PEXPIRE", growth, last_ms)])
        return max(0, closed_ms) / 1000

    def start(self, send: MadeSend) -> None:
        """Put the chain of a send in progress into its queue."""
        with self.runtime.ledger.autocommit() as connection:
            row = connection.execute("SELECT lane FROM send WHERE id = %s", [send.id]).fetchone()
        assert row is not None
        assert start_chain(self.runtime.ledger, self.jobs, ChainKey(send.id, send.channel, 0), lane=Lane(row[0]))

    def run(self, send: MadeSend) -> None:
        """Start a send in progress and work it off."""
        self.start(send)
        self.work_off()
