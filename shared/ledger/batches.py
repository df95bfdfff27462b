"""Batches: leasing, giving back, freeing what the dead held, sweeping what is cancelled or expired."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.domain.states import DeliveryStatus, Lane, SendEventKind
from shared.ledger import send_events
from shared.ledger.chains import ChainKey
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_LEASE = statement("lease_batches")
_RELEASE = statement("release_batches")
_SET_ASIDE = statement("set_batches_aside")
_LOCK = statement("lock_batches")
_ABANDONED = statement("find_abandoned_batches")
_FREE = statement("free_abandoned_batch")
_SWEEP = statement("sweep_batches")
_TO_SWEEP = statement("find_sends_to_sweep")
_CLOSE_CANCELLED = statement("close_cancelled_send")
_BEGIN_EXPIRED = statement("begin_expired_send")


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """A batch this process holds; `waiting` is how many of its rows were owed or retrying when it was leased."""

    batch_no: int
    waiting: int


@dataclass(frozen=True, slots=True)
class AbandonedBatch:
    """A batch whose holder is dead."""

    send_id: UUID
    batch_no: int
    holder: UUID
    lane: Lane


def lease(
    connection: Connection, chain: ChainKey, *, worker: UUID, limit: int, token: UUID | None = None
) -> list[LeasedBatch]:
    """
    Take up to `limit` free due batches for a chain, the longest due first.

    With the `token` of the chain's message: none once the chain was taken away or has another message.
    """
    rows = connection.execute(_LEASE, chain.parameters(worker=worker, limit=limit, token=token)).fetchall()
    return [LeasedBatch(batch_no, waiting) for batch_no, waiting in sorted(rows)]


def release(
    connection: Connection,
    chain: ChainKey,
    *,
    worker: UUID,
    batches: list[int] | None = None,
    token: UUID | None = None,
) -> None:
    """
    Give a chain's batches back, all of them for None; those somebody else holds by now are left alone.

    With the `token` of the chain's message: what its successor in the same process holds is left alone too.
    """
    connection.execute(_RELEASE, chain.parameters(worker=worker, batches=batches, token=token))


def set_aside(connection: Connection, chain: ChainKey, *, worker: UUID) -> None:
    """Keep what a chain holds and still owes away from everybody until the reconciler frees it."""
    connection.execute(_SET_ASIDE, chain.parameters(worker=worker))


@dataclass(frozen=True, slots=True)
class Loss:
    """Why nobody knows what became of the calls of a batch: a short code, and a sentence for the attempt's row."""

    code: str
    detail: str


DIED = Loss("worker_died", "the worker died while this call may have been in flight")
HUNG = Loss("worker_hung", "the worker recorded nothing any more while this call may have been in flight")
NOT_RECORDED = Loss("outcome_lost", "the outcome of this call was not recorded; see the log of its worker")
#: Holds what a worker gave back with a call whose outcome was lost, and what was taken from one that hung.
NOBODY = UUID(int=0)


def lock(connection: Connection, *, send_id: UUID, batches: list[int]) -> None:
    """Lock batches before their rows: without a lease, recording would meet whoever frees them the other way round."""
    connection.execute(_LOCK, {"send_id": send_id, "batches": batches})


def find_abandoned(connection: Connection, *, limit: int) -> list[AbandonedBatch]:
    """Batches held by dead processes, oldest lease first."""
    rows = connection.execute(_ABANDONED, {"limit": limit})
    return [AbandonedBatch(send_id, batch_no, holder, Lane(lane)) for send_id, batch_no, holder, lane in rows]


def free_abandoned(
    connection: Connection,
    batch: AbandonedBatch,
    *,
    first_look_s: Mapping[str, float] | None = None,
    loss: Loss | None = None,
) -> int | None:
    """
    Free a dead holder's batch; how many calls in flight became `unsure`, None when it was no longer so.

    `first_look_s`: seconds until the first look by provider; a call to a provider that is not named is parked.
    """
    looks = first_look_s or {}
    loss = loss or (NOT_RECORDED if batch.holder == NOBODY else DIED)
    parameters = {
        "send_id": batch.send_id,
        "batch_no": batch.batch_no,
        "worker": batch.holder,
        "code": loss.code,
        "detail": loss.detail,
        "providers": list(looks),
        "first_look_s": list(looks.values()),
    }
    row = connection.execute(_FREE, parameters).fetchone()
    if row is None:
        return None
    unsure = int(row[0])
    kind = SendEventKind(loss.code)
    send_events.note(connection, batch.send_id, kind, batch_no=batch.batch_no, deliveries=unsure)
    return unsure


def sweep(connection: Connection, *, send_id: UUID, status: DeliveryStatus, limit: int) -> int:
    """Settle what a stopped send still owes as `status`, at most `limit` batches; the number of deliveries."""
    rows = connection.execute(_SWEEP, {"send_id": send_id, "status": status.value, "limit": limit})
    return sum(row[0] for row in rows)


def find_to_sweep(connection: Connection, *, limit: int) -> list[tuple[UUID, DeliveryStatus]]:
    """Sends whose owed deliveries are to become `cancelled` or `expired`."""
    return [(row[0], DeliveryStatus(row[1])) for row in connection.execute(_TO_SWEEP, {"limit": limit})]


def close_cancelled(connection: Connection, send_id: UUID) -> bool:
    """Write down the totals of a cancelled send with nothing open; False when it is not so."""
    return connection.execute(_CLOSE_CANCELLED, {"send_id": send_id}).fetchone() is not None


def begin_expired(connection: Connection, send_id: UUID) -> None:
    """Let a send that is past its valid_until without having started run to its end."""
    connection.execute(_BEGIN_EXPIRED, {"send_id": send_id})
