"""What the actors of one process share: settings, stores, lease, and whether the process is stopping."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import dramatiq

from shared.coordination.doorbell import Doorbell
from shared.coordination.minute_ring import MinuteRings
from shared.coordination.redis import RedisLink
from shared.ledger import pools
from shared.ledger.db import POSTGRES_AWAY, Ledger
from shared.settings import Settings
from workers.middleware.lease import WorkerLease

_log = logging.getLogger(__name__)
#: Seconds before the drain deadline at which calls still in flight are cut, so that there is time to record.
_CUT_BEFORE_END_S = 2.0
#: Seconds before it at which work that has not ended is left, so that the lease is given up and the end is a clean one.
_LEAVE_BEFORE_END_S = 0.5
#: Seconds a worker waits for Postgres before its consumers start anyway.
_FIRST_LEASE_S = 30.0


class Runtime(dramatiq.Middleware):
    """Opens the process's resources when it boots and closes them, lease last but one, when it stops."""

    def __init__(self, settings: Settings, *, process: str) -> None:
        self.settings = settings
        self.process = process
        self.ledger = Ledger(
            settings.database_url.get_secret_value(), size=settings.db_pool_size, name=f"tidings {process}"
        )
        self.link = RedisLink(settings.redis_url.get_secret_value())
        self.doorbell = Doorbell(self.link, namespace=settings.redis_namespace)
        self.minutes = MinuteRings(
            self.link, points=settings.queue_metrics_max_data_points, namespace=settings.redis_namespace
        )
        self.lease = WorkerLease(
            self.ledger,
            name=f"{process}@{socket.gethostname()}:{os.getpid()}",
            lease_s=settings.lease_ms / 1000,
            renew_s=settings.lease_renew_ms / 1000,
        )
        #: Called with every beat, and when the process has stopped: what actors keep for the whole process.
        self.each_beat: list[Callable[[], None]] = []
        self.at_end: list[Callable[[], None]] = []
        self._draining = threading.Event()
        self._drain_until = float("inf")

    @property
    def draining(self) -> bool:
        """Whether the process takes no new work."""
        return self._draining.is_set()

    @property
    def must_cut(self) -> bool:
        """Whether calls in flight have no time left."""
        return time.monotonic() >= self._drain_until - _CUT_BEFORE_END_S

    @property
    def work_ends_in_s(self) -> float:
        """Seconds that work under way has left; infinite before a drain."""
        return max(0.0, self._drain_until - _LEAVE_BEFORE_END_S - time.monotonic())

    def wait_draining(self, timeout_s: float) -> bool:
        """Sleep that ends early when the process starts to drain; True then."""
        return self._draining.wait(timeout_s)

    def begin_drain(self) -> None:
        """Stop taking work; the deadline is counted from the first call."""
        if not self._draining.is_set():
            self._drain_until = time.monotonic() + self.settings.queue_shutdown_drain_ms / 1000
            self._draining.set()

    def before_worker_boot(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Open the stores; a worker that cannot hold anything yet must not consume."""
        self.ledger.open()
        self.lease.start()
        if not self.lease.wait(_FIRST_LEASE_S):
            _log.warning("postgres_away_at_start", extra={"waited_s": _FIRST_LEASE_S})
            return
        try:
            with self.ledger.autocommit() as connection:
                pools.warn_if_short(connection, self.settings)
        except POSTGRES_AWAY:
            return  # the warning is for the ordinary case; this process waits like any other

    def after_worker_shutdown(self, broker: Any, worker: Any) -> None:  # noqa: ARG002  # dramatiq's signature
        """Give up the lease, then the stores."""
        for close in self.at_end:
            close()
        self.lease.close()
        self.minutes.close()
        self.doorbell.close()
        self.ledger.close()
        self.link.close()
