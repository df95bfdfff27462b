"""The lease of this process: the one thing that says it may hold batches and chains."""

import logging
import threading
import time
from uuid import UUID, uuid4

from shared.ledger import workers
from shared.ledger.db import POSTGRES_AWAY, Ledger

_log = logging.getLogger(__name__)
#: Goes on while the machine sleeps, where there is such a clock: Linux's monotonic one stands still meanwhile, and a
#: lease would outlive its time. One that a hypervisor stops from outside knows of no time at all (ADR-0007).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class WorkerLease:
    """
    A row in `worker`, renewed by a thread of its own.

    `holds()` is answered from this machine's clock alone, one that nobody sets: a process that was frozen past its
    lease knows it before its next call, without asking anybody. The moment counted from is taken before the renewing
    statement starts, so this side always gives up first.
    """

    def __init__(self, ledger: Ledger, *, name: str, lease_s: float, renew_s: float) -> None:
        self.worker: UUID = uuid4()
        self._ledger = ledger
        self.name = name
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._until = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Register, waiting for Postgres as long as it takes, and keep renewing."""
        self._thread.start()

    def holds(self, worker: UUID) -> bool:
        """Whether what this process leased as `worker` is still its own; never again once that lease was lost."""
        return worker == self.worker and time.clock_gettime(_CLOCK) < self._until

    def wait(self, timeout_s: float) -> bool:
        """Wait for the first registration; False when it did not come in time."""
        deadline = time.clock_gettime(_CLOCK) + timeout_s
        while time.clock_gettime(_CLOCK) >= self._until:
            if time.clock_gettime(_CLOCK) > deadline or self._stop.wait(0.05):
                return False
        return True

    def close(self) -> None:
        """Give everything up at once; what was still held is free."""
        self._stop.set()
        self._thread.join(self._renew_s)
        self._until = 0.0
        try:
            with self._ledger.autocommit() as connection:
                workers.remove(connection, worker=self.worker)
        except POSTGRES_AWAY:
            _log.warning("lease_not_removed", extra={"worker": str(self.worker)})

    def _run(self) -> None:
        registered = False
        while not self._stop.is_set():
            asked = time.clock_gettime(_CLOCK)
            try:
                registered = self._renew(registered=registered)
                self._until = asked + self._lease_s
            except Exception as error:  # noqa: BLE001
                # A thread's border: whatever it was, a process that stopped renewing would never hold anything again.
                extra = {"worker": str(self.worker), "error": type(error).__name__}
                _log.warning("lease_not_renewed", exc_info=not isinstance(error, POSTGRES_AWAY), extra=extra)
            self._stop.wait(self._renew_s if registered else min(1.0, self._renew_s))

    def _renew(self, *, registered: bool) -> bool:
        with self._ledger.autocommit() as connection:
            if registered and workers.renew(connection, worker=self.worker, lease_s=self._lease_s):
                return True
            if registered:
                # What the old id held has been, or will be, freed; holding again needs a new identity.
                _log.warning("lease_lost", extra={"worker": str(self.worker)})
                self.worker = uuid4()
            workers.register(connection, worker=self.worker, name=self.name, lease_s=self._lease_s)
        return True
