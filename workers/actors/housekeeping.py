"""Housekeeping: what is bounded by count or age is brought back into its bounds, a little at a time."""

import logging
from datetime import timedelta

import dramatiq

from shared.jobs import MESSAGE_VERSION, Broker, JobName, QueueName
from shared.ledger import chains, idempotency, minutes, sandbox, workers
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)
#: Rows removed by one statement: its locks last milliseconds.
_CHUNK = 2_000
#: Statements of one kind in one run.
_ROUNDS = 50


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""

    @dramatiq.actor(broker=broker, actor_name=JobName.HOUSEKEEPING.value, queue_name=QueueName.OPS.value)
    def housekeeping(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v != MESSAGE_VERSION:
            return
        settings = runtime.settings
        removed = {"sandbox_messages": 0, "idempotency_keys": 0, "chains": 0, "workers": 0}
        with runtime.ledger.autocommit() as connection:
            for _ in range(_ROUNDS):
                gone = sandbox.trim(
                    connection,
                    keep_messages=settings.sandbox_keep_messages,
                    keep_hours=settings.sandbox_keep_hours,
                    limit=_CHUNK,
                )
                removed["sandbox_messages"] += gone
                if gone < _CHUNK or runtime.draining:
                    break
            removed["idempotency_keys"] = idempotency.forget(
                connection, ttl=timedelta(hours=settings.idempotency_key_ttl_hours), limit=_CHUNK
            )
            removed["chains"] = chains.forget(connection)
            shortened = workers.shorten_leases(connection)
            if shortened:
                _log.warning("leases_shortened", extra={"workers": shortened})
            removed["workers"] = workers.forget_dead(connection)
            minutes.fold(connection, limit=10 * _CHUNK)
        if any(removed.values()):
            _log.info("housekeeping_done", extra=removed)
