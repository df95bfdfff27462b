"""Deliveries whose outcome nobody knows: taken for a look at their provider, and settled by what it finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.receipts import ReceiptStatus
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger.db import Connection, together
from shared.ledger.queries import statement

_FIND = statement("find_batches_to_prove")
_LOCK = statement("lock_batch_to_prove")
_TAKE = statement("take_rows_to_prove")
_LOCK_ANY = statement("lock_batch_of_proofs")
_RECORD = statement("record_proofs")

#: Among so many times the batches wanted, those of different tenants take turns.
_AMONG = 20


@dataclass(frozen=True, slots=True)
class ProvedBatch:
    """A batch of which rows are being proved."""

    send_id: UUID
    batch_no: int


@dataclass(frozen=True, slots=True)
class UnsureDelivery:
    """
    A row taken for one look, until `held_until`.

    `attempt_count` includes the call in question, which began at `attempt_at` with `provider` under `credential`;
    `absences` is how often the provider did not know the message so far. `lost_since`: when the first call of this life
    began whose message was proved absent; None where there was none.
    """

    row_no: int
    channel: Channel
    address: str
    params: dict[str, Any] | None
    attempt_count: int
    epoch: int
    claim_id: UUID
    attempt_at: datetime
    lost_since: datetime | None
    held_until: datetime
    absences: int
    provider: str | None
    credential: str | None


@dataclass(frozen=True, slots=True)
class ProofResult:
    """
    What one look makes of a row. Texts are masked and cut already.

    `unsure` with `prove_at` is looked at again then, without it parked; only what settles the row is written down
    as an attempt, with `outcome`, `code` and `evidence`.
    """

    row: UnsureDelivery
    became: DeliveryStatus
    uses_attempt: bool
    next_attempt_at: datetime | None
    prove_at: datetime | None
    saw_absence: bool
    ref: str | None
    receipt: ReceiptStatus | None
    outcome: str
    code: str
    detail: str
    signature: str | None
    evidence: dict[str, str]


def find_due(connection: Connection, *, limit: int) -> list[ProvedBatch]:
    """Batches with a row whose time for a look has come, tenants in turns."""
    found = connection.execute(_FIND, {"limit": limit, "among": limit * _AMONG})
    return [ProvedBatch(*row) for row in found]


def take(connection: Connection, batch: ProvedBatch, *, hold_s: float, limit: int) -> list[UnsureDelivery]:
    """
    Take the rows of a batch that are due for a look; nobody else looks at them for `hold_s` seconds.

    Empty when another prover is at the batch, or was. Commit before the look.
    """
    this = {"send_id": batch.send_id, "batch_no": batch.batch_no}
    with together(connection):
        bounds = connection.execute(_LOCK, this).fetchone()
        if bounds is None:
            return []
        limits = {"first_row": bounds[0], "last_row": bounds[1], "hold_s": hold_s, "limit": limit}
        rows = connection.execute(_TAKE, {**this, **limits}).fetchall()
    return [UnsureDelivery(row[0], Channel(row[1]), *row[2:]) for row in rows]


def record(connection: Connection, batch: ProvedBatch, results: Sequence[ProofResult]) -> list[ProofResult]:
    """Record what looks found, all together; those whose rows were settled by somebody else meanwhile."""
    this = {"send_id": batch.send_id, "batch_no": batch.batch_no}
    with together(connection):
        bounds = connection.execute(_LOCK_ANY, this).fetchone()
        if bounds is None:
            return list(results)
        parameters = {
            **this,
            "first_row": bounds[0],
            "last_row": bounds[1],
            "rows": [r.row.row_no for r in results],
            "claims": [r.row.claim_id for r in results],
            "held": [r.row.held_until for r in results],
            "became": [r.became.value for r in results],
            "uses": [r.uses_attempt for r in results],
            "next": [r.next_attempt_at for r in results],
            "prove": [r.prove_at for r in results],
            "absent": [r.saw_absence for r in results],
            "refs": [r.ref for r in results],
            "receipts": [None if r.receipt is None else r.receipt.value for r in results],
            "details": [r.detail for r in results],
            "outcomes": [r.outcome for r in results],
            "codes": [r.code for r in results],
            "signatures": [r.signature for r in results],
            "evidence": [Jsonb(r.evidence) for r in results],
        }
        done = {row[0] for row in connection.execute(_RECORD, parameters)}
    return [result for result in results if result.row.row_no not in done]
