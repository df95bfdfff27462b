"""Paused queues: this process stops consuming one, and its chains give back what they hold, within seconds."""

import logging
from typing import Any

import dramatiq

from shared.coordination.periodic import Periodic
from shared.jobs import Broker
from shared.ledger import pauses
from shared.ledger.db import POSTGRES_AWAY
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)
#: Seconds between two looks at the ledger: one row read by key per process.
_LOOK_S = 2.0


class Pauses(dramatiq.Middleware):
    """
    Asks the ledger which queues are paused, before the first message and then every 2 s.

    What was fetched stays this process's and is worked on after the pause; should the process die, the messages
    go back to their queue as always. While Postgres is away the last answer stands.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._broker: Broker | None = None
        self._periodic = Periodic("paused queues", _LOOK_S, self.look)

    def before_worker_boot(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Know the pauses before anything is consumed."""
        self._broker = broker
        self.look()
        self._periodic.start()
        self._runtime.at_end.append(self._periodic.stop)

    def look(self) -> None:
        """Compare with the ledger. Called by the thread."""
        assert self._broker is not None  # noqa: S101  # it boots before the thread starts
        try:
            with self._runtime.ledger.autocommit() as connection:
                now = frozenset(pauses.paused(connection))
        except POSTGRES_AWAY:
            return
        before, self._broker.paused = self._broker.paused, now
        for queue in sorted(before ^ now):
            self._runtime.doorbell.ring("queues")
            _log.info("queue_paused" if queue in now else "queue_resumed", extra={"queue": queue})
