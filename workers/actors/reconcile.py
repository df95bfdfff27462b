"""The reconciler's passes in a worker; what a pass does is in `shared.recovery.reconciler`."""

import logging

import dramatiq

from shared.accounts import first_looks_s
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName
from shared.ledger.db import POSTGRES_AWAY
from shared.recovery.reconciler import Reconciler
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    reconciler = Reconciler(
        runtime.ledger,
        runtime.link,
        Jobs(broker),
        runtime.settings,
        worker=runtime.lease.name,
        first_look_s=first_looks_s(runtime.settings),
        stop=lambda: runtime.draining,
    )

    @dramatiq.actor(broker=broker, actor_name=JobName.RECONCILE.value, queue_name=QueueName.OPS.value)
    def reconcile(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v != MESSAGE_VERSION:
            return
        try:
            reconciler.run_pass()
            runtime.doorbell.ring("recovery")
        except POSTGRES_AWAY as error:
            # The pass shows without its end; the next one finds everything it would have.
            _log.warning("pass_stopped_without_postgres", extra={"error": type(error).__name__})
