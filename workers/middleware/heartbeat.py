"""The beat of a worker process, every 5 s: to people (its row on the System tab) and to the broker."""

import contextlib
import threading
import time
from typing import Any

import dramatiq
import redis

from shared.coordination import keys
from shared.coordination.heartbeat import INTERVAL_S, Heartbeat, Identity
from workers.middleware.runtime import Runtime


class Heartbeats(dramatiq.Middleware):
    """
    The broker's own heartbeat is a side effect of its commands: a healthy worker whose prefetch is full sends
    none, is taken for dead, and its running messages are given to others. So the beat is written here as well.

    Source: dramatiq 2.2, dispatch.lua (each command first writes the heartbeat).
    """

    def __init__(self, runtime: Runtime, *, version: str) -> None:
        self._runtime = runtime
        self._version = version
        self._heartbeat: Heartbeat | None = None

    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        """Begin to beat; the queues are known by now."""
        runtime = self._runtime
        beats = keys.BROKER_HEARTBEATS.name(broker.namespace)

        def with_each_beat() -> None:
            # First: the others ask Redis with less patience, and what they raise must not cost this beat.
            with contextlib.suppress(redis.RedisError):  # without Redis nobody can take this worker for dead either
                broker.client.zadd(beats, {broker.broker_id: int(time.time() * 1000)})
            for call in runtime.each_beat:
                call()

        self._heartbeat = Heartbeat(
            runtime.link,
            Identity(
                id=str(runtime.lease.worker),
                name=runtime.lease.name,
                kind=runtime.process,
                version=self._version,
                queues=tuple(sorted(name for name in worker.consumers if not name.endswith(".DQ"))),
                threads=len(worker.workers),
            ),
            interval_s=INTERVAL_S,
            namespace=runtime.settings.redis_namespace,
            also=with_each_beat,
            paused=lambda: broker.paused,
        )
        self._heartbeat.start()
        runtime.doorbell.ring("workers", "queues")

    def before_process_message(self, broker: Any, message: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """A consumer thread took a message."""
        if self._heartbeat is not None:
            self._heartbeat.progress(threading.current_thread().name, busy=True)

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:  # noqa: ARG002
        """A consumer thread finished one."""
        if self._heartbeat is not None:
            self._heartbeat.progress(threading.current_thread().name, busy=False)

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Show as shutting down."""
        if self._heartbeat is not None:
            self._heartbeat.drain(self._runtime.settings.queue_shutdown_drain_ms / 1000)
            self._runtime.doorbell.ring("workers")

    def after_worker_shutdown(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Leave the list at once."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._runtime.doorbell.ring("workers", "queues")
