"""Operations of people, worked on in chunks: paced, stoppable between any two, gone on with after a crash."""

import logging
import time

import dramatiq
import psycopg

from shared.domain.digests import LogEvent
from shared.domain.requeue import OperationKind, canary_step, seconds_for
from shared.jobs import MESSAGE_VERSION, Broker, JobName, QueueName
from shared.ledger import digest_requeue, operation_results, operations, requeue, retention
from shared.ledger.db import POSTGRES_AWAY, Connection
from shared.ledger.operations import Taken
from workers.middleware.runtime import Runtime

_log = logging.getLogger(__name__)

#: Deliveries in one transaction: their rows and batches are locked for some 30 ms.
CHUNK = 200
#: Seconds between two looks at what became of the first ones.
_CANARY_LOOK_S = 1.0
#: Seconds for the count of what came of an operation.
_COUNT_S = 10.0
#: Seconds a message works; due work sends another while an operation is open.
_BUDGET_S = 10.0


class Operate:
    """Takes open operations, the longest due first, for one chunk each."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self) -> None:
        """Work until nothing is due soon, the process drains or the time is up."""
        until = time.monotonic() + _BUDGET_S
        while not self._runtime.draining and time.monotonic() < until:
            try:
                if self.work_once():
                    self._runtime.doorbell.ring("failures", "operation", "operations", "sends", "channels", "digests")
                    continue
                with self._runtime.ledger.autocommit() as connection:
                    wait_s = operations.next_in_s(connection)
                if wait_s is None or wait_s > _CANARY_LOOK_S:
                    self.count_results()
                    return
            except POSTGRES_AWAY as error:
                # A deadlock, too, is told like this: the chunk is undone, and done again when it is found.
                _log.warning("operation_interrupted", extra={"error": type(error).__name__})
                return
            self._runtime.wait_draining(max(wait_s, 0.02))

    def count_results(self, *, patience_s: float = _COUNT_S) -> None:
        """Count what came of large operations where it is time to: a page does not."""
        with self._runtime.ledger.autocommit() as connection:
            found = operation_results.to_count(connection, limit=1)
        for id_ in found:
            try:
                with self._runtime.ledger.transaction() as connection:
                    retention.limit_statements(connection, seconds=patience_s)
                    operation_results.note_count(connection, id_)
            except psycopg.errors.QueryCanceled:
                _log.warning("operation_not_counted", extra={"operation": str(id_), "seconds": patience_s})
                with self._runtime.ledger.transaction() as connection:
                    operation_results.note_uncounted(connection, id_)
            self._runtime.doorbell.ring("operation")

    def work_once(self) -> bool:
        """One chunk of one operation, in one transaction; False when none is due."""
        with self._runtime.ledger.transaction() as connection:
            return self._work(connection)

    def _work(self, connection: Connection) -> bool:
        operation = operations.take(connection)
        if operation is None:
            return False
        most = CHUNK
        if operation.is_trying:
            step = canary_step(operations.canary_result(connection, operation))
            if step.stop is not None:
                self._stop(connection, operation, step.stop)
                return True
            if step.most == 0:
                operations.put_off(connection, operation, pause_s=_CANARY_LOOK_S)
                return True
            most = min(step.most or CHUNK, CHUNK)
        self._chunk(connection, operation, most)
        return True

    def _chunk(self, connection: Connection, operation: Taken, most: int) -> None:
        sends = 0
        if operation.takes_notifications:
            done, skipped = digest_requeue.work_on(connection, operation.kind, operation.id, limit=most)
        else:
            done, skipped, sends = _work_on_deliveries(connection, operation, most)
        if done + skipped:
            pause_s = seconds_for(done + skipped, sends, kind=operation.kind)
            operations.note_progress(connection, operation, done=done, skipped=skipped, pause_s=pause_s)
        done, skipped = operation.done + done, operation.skipped + skipped
        if operations.end(connection, operation, done=done, skipped=skipped):
            told_again = operation.takes_notifications and operation.kind is OperationKind.REQUEUE
            number = {"event_id": LogEvent.REQUEUED.value} if told_again else {}
            extra = {**number, "operation": str(operation.id), "done": done, "skipped": skipped}
            _log.info("operation_done", extra=extra)

    @staticmethod
    def _stop(connection: Connection, operation: Taken, why: str) -> None:
        operations.stop(connection, operation.id, operator="tidings", why=why)
        _log.warning("operation_stopped", extra={"operation": str(operation.id), "why": why})


def _work_on_deliveries(connection: Connection, operation: Taken, most: int) -> tuple[int, int, int]:
    """A chunk of deliveries: how many are done, how many were skipped, of how many sends they are."""
    items = operations.next_items(connection, operation, limit=most)
    if not items:
        return 0, 0, 0
    done, skipped = requeue.work_on(
        connection,
        operation.kind,
        items,
        operation=operation.id,
        takes_unsure=operation.accepts_duplicates,
        takes_reported=operation.takes_reported,
    )
    return done, skipped, len({item.send_id for item in items})


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    operate_on = Operate(runtime)

    @dramatiq.actor(broker=broker, actor_name=JobName.OPERATE.value, queue_name=QueueName.OPS.value)
    def operate(*, v: int, slot: int) -> None:  # noqa: ARG001  # the slot names the tick in logs
        if v == MESSAGE_VERSION:
            operate_on.run()
