"""What the reconciler asks of the ledger: what is stuck, tenant by tenant in turns, and what is done about it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.signature import FailureSignature
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendEventKind
from shared.ledger import send_events
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_STUCK_SENDS = statement("find_stuck_sends")
_START_OVERDUE = statement("start_overdue_send")
_STUCK_BATCHES = statement("find_stuck_batches")
_TAKE_STALLED = statement("take_stalled_batch")
_MEND = statement("mend_batches")
_SPENT = statement("find_spent_batches")
_WAITED_OUT = statement("find_waited_out_batches")
_SETTLE = statement("settle_unsent_rows")
_BEGIN = statement("begin_recovery_pass")
_NOTE = statement("note_recovery_pass")
_NOTE_TICK = statement("insert_recovering_tick")
_END = statement("end_recovery_pass")
_PASSES = statement("select_recovery_passes")
_FORGET = statement("forget_recovery_passes")
_LOCK = statement("lock_recovery")
_UNLOCK = statement("unlock_recovery")

T = TypeVar("T", bound="Stuck")


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something of a tenant's that does not move."""

    tenant_id: int
    send_id: UUID


@dataclass(frozen=True, slots=True)
class StuckSend(Stuck):
    """A send nobody took further; `kind` is `pending`, `ingestion` or `scheduled`."""

    kind: str


@dataclass(frozen=True, slots=True)
class StuckBatch(Stuck):
    """A batch that does not move; `holder` is None for one that nobody holds."""

    batch_no: int
    channel: Channel
    lane: Lane
    holder: UUID | None = None
    holder_lives: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a batch's unsent rows are settled without a call, and as what. `outcome` is the word and code of it."""

    became: DeliveryStatus
    outcome: str
    detail: str
    provider: str
    signature: FailureSignature


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider and credential, called since `since` and taking nothing."""

    provider: str
    credential: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Pass:
    """
    A pass as it was recorded; one without an end died, or is running. `counts` is by kind.

    `by_tick`: a tick of the due work that recovered something in between. Says nothing of when the reconciler ran.
    """

    id: int
    worker: str
    fence: int
    started_at: datetime
    ended_at: datetime | None
    counts: Mapping[str, Any]
    error: str | None

    @property
    def by_tick(self) -> bool:
        """Whether a tick of the due work did it, and not a pass."""
        return self.fence == 0


def stuck_sends(connection: Connection, *, pending_s: float, stale_s: float, page: int) -> Iterator[StuckSend]:
    """Sends nobody took further for so many seconds; a tenant's turn comes again once all others had theirs."""

    def find(seen: Mapping[str, Jsonb]) -> list[StuckSend]:
        parameters = {"pending_s": pending_s, "stale_s": stale_s, "limit": page, **seen}
        return [StuckSend(tenant, id_, kind) for kind, tenant, id_ in connection.execute(_STUCK_SENDS, parameters)]

    return _in_turns(find, page=page)


def stuck_batches(connection: Connection, *, stale_s: float, page: int) -> Iterator[StuckBatch]:
    """Batches held by the dead, or by a living process that recorded nothing for `stale_s` seconds; in turns."""

    def find(seen: Mapping[str, Jsonb]) -> list[StuckBatch]:
        rows = connection.execute(_STUCK_BATCHES, {"stale_s": stale_s, "limit": page, **seen})
        return [_batch(row) for row in rows]

    return _in_turns(find, page=page)


def spent_batches(connection: Connection, *, most: int, page: int) -> Iterator[StuckBatch]:
    """Free batches recovered more than `most` times in a row without progress, that still owe something; in turns."""

    def find(seen: Mapping[str, Jsonb]) -> list[StuckBatch]:
        rows = connection.execute(_SPENT, {"most": most, "limit": page, **seen})
        return [_batch(row) for row in rows]

    return _in_turns(find, page=page)


def waited_out_batches(
    connection: Connection, outage: Outage, *, channel: Channel, mode: Mode, wait_s: float, page: int
) -> Iterator[StuckBatch]:
    """Free batches of one channel and mode that owe something in an outage for `wait_s` seconds; in turns."""

    def find(seen: Mapping[str, Jsonb]) -> list[StuckBatch]:
        way = {"channel": channel.value, "mode": mode.value}
        parameters = {**way, "outage_since": outage.since, "wait_s": wait_s, "limit": page, **seen}
        return [_batch(row) for row in connection.execute(_WAITED_OUT, parameters)]

    return _in_turns(find, page=page)


def start_overdue(connection: Connection, send_id: UUID) -> bool:
    """Start a scheduled send whose time has come; False when somebody did."""
    if connection.execute(_START_OVERDUE, {"send_id": send_id}).fetchone() is None:
        return False
    send_events.note(connection, send_id, SendEventKind.OVERDUE)
    return True


def take_stalled(connection: Connection, batch: StuckBatch, *, stale_s: float) -> bool:
    """Take a batch and its chain from a living holder without progress; False when it moved meanwhile."""
    parameters = {"send_id": batch.send_id, "batch_no": batch.batch_no, "worker": batch.holder, "stale_s": stale_s}
    return connection.execute(_TAKE_STALLED, parameters).fetchone() is not None


def mend(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Bring free batches back into a state that some finder looks for; which ones."""
    return [(row[0], row[1]) for row in connection.execute(_MEND, {"limit": limit})]


def settle_unsent(
    connection: Connection,
    batch: StuckBatch,
    verdict: Verdict,
    *,
    recovered_more_than: int | None = None,
    outage: Outage | None = None,
) -> int:
    """
    Settle what a free batch still owes without a call; how many deliveries, 0 when the reason is true no more.

    The reason: recovered more often than that, or an outage that nothing has ended since.
    """
    row = connection.execute(
        _SETTLE,
        {
            "send_id": batch.send_id,
            "batch_no": batch.batch_no,
            "most": recovered_more_than,
            "outage_since": outage.since if outage else None,
            "account": outage.provider if outage else None,
            "credential": outage.credential if outage else None,
            "became": verdict.became.value,
            "outcome": verdict.outcome,
            "detail": verdict.detail,
            "channel": batch.channel.value,
            "provider": verdict.provider,
            "signature": verdict.signature.id,
        },
    ).fetchone()
    if row is None:
        return 0
    settled = int(row[0])
    kind = SendEventKind(verdict.outcome)
    send_events.note(connection, batch.send_id, kind, batch_no=batch.batch_no, deliveries=settled)
    return settled


def try_lock(connection: Connection) -> bool:
    """Take the lock of a pass in this session; False where another session holds it."""
    row = connection.execute(_LOCK).fetchone()
    return row is not None and bool(row[0])


def unlock(connection: Connection) -> None:
    """Give the lock of a pass back."""
    connection.execute(_UNLOCK)


def begin_pass(connection: Connection, *, worker: str, fence: int | None) -> tuple[int, int]:
    """Write down that a pass begins; its id and its fence, one above the newest where the lock gave none."""
    row = connection.execute(_BEGIN, {"worker": worker, "fence": fence}).fetchone()
    assert row is not None  # noqa: S101  # an INSERT … RETURNING gives a row
    return int(row[0]), int(row[1])


def note_pass(connection: Connection, pass_id: int, *, counts: Mapping[str, Any]) -> bool:
    """Write down what a pass has done so far; False when a newer one has begun and this one must stop."""
    return connection.execute(_NOTE, {"id": pass_id, "counts": Jsonb(counts)}).fetchone() is not None


def note_tick(connection: Connection, *, worker: str, took_s: float, counts: Mapping[str, Any]) -> None:
    """Write down what a tick of the due work recovered, for people to see among the passes."""
    connection.execute(_NOTE_TICK, {"worker": worker, "took_s": took_s, "counts": Jsonb(counts)})


def end_pass(
    connection: Connection,
    pass_id: int,
    *,
    counts: Mapping[str, Any],
    error: str | None,
    unaccounted: Mapping[str, Any] | None,
) -> None:
    """Write down the end of a pass; `error` says why it ended early, `unaccounted` what is wrong in the books."""
    wrong = None if unaccounted is None else Jsonb(unaccounted)
    connection.execute(_END, {"id": pass_id, "counts": Jsonb(counts), "error": error, "unaccounted": wrong})
    connection.execute(_FORGET)


def passes(connection: Connection, *, limit: int) -> list[Pass]:
    """The newest first: passes, and the ticks that recovered something."""
    return [Pass(*row) for row in connection.execute(_PASSES, {"limit": limit})]


def _batch(row: tuple[Any, ...]) -> StuckBatch:
    tenant_id, send_id, batch_no, channel, lane, *held = row
    return StuckBatch(tenant_id, send_id, batch_no, Channel(channel), Lane(lane), *held)


def _in_turns(find: Callable[[Mapping[str, Jsonb]], list[T]], *, page: int) -> Iterator[T]:
    """
    Go through a finder's pages, each behind the last thing seen of every tenant.

    What cannot be helped stays behind the cursor: a page full of it keeps nobody else from their turn.
    """
    seen: dict[int, T] = {}
    while True:
        found = find(
            {
                "sends": Jsonb({str(tenant): str(stuck.send_id) for tenant, stuck in seen.items()}),
                "batches": Jsonb({str(tenant): getattr(stuck, "batch_no", 0) for tenant, stuck in seen.items()}),
            }
        )
        yield from found
        if len(found) < page:
            return
        seen |= {stuck.tenant_id: stuck for stuck in found}
