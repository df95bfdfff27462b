"""A worker process played by hand: registers, leases, claims and records through the ledger's own functions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from shared.domain.states import DeliveryStatus, Lane
from shared.ledger import batches, chains, deliveries, proofs, workers
from shared.ledger.batches import AbandonedBatch, LeasedBatch
from shared.ledger.chains import ChainKey
from shared.ledger.db import Ledger
from shared.ledger.deliveries import Claim, ClaimedDelivery, Result
from shared.ledger.proofs import ProofResult, ProvedBatch, UnsureDelivery
from tests.support.factories import MadeSend


@dataclass
class Hand:
    ledger: Ledger
    worker: UUID = field(default_factory=uuid4)

    def register(self, *, lease_s: float = 60.0) -> "Hand":
        with self.ledger.autocommit() as connection:
            workers.register(connection, worker=self.worker, name="by hand", lease_s=lease_s)
        return self

    def die(self) -> None:
        """The lease runs out, as that of a killed process does."""
        with self.ledger.autocommit() as connection:
            connection.execute(
                "UPDATE worker SET lease_until = now() - interval '1 second' WHERE id = %s", [self.worker]
            )

    def lease(self, send: MadeSend, *, chain_no: int = 0, limit: int = 100) -> list[LeasedBatch]:
        with self.ledger.autocommit() as connection:
            return batches.lease(connection, key(send, chain_no), worker=self.worker, limit=limit)

    def claim(
        self, send: MadeSend, held: Sequence[int] = (0,), *, limit: int = 100, claim: UUID | None = None
    ) -> tuple[Claim, list[ClaimedDelivery]]:
        claim_id = claim or uuid4()
        with self.ledger.autocommit() as connection:
            rows = deliveries.claim_window(
                connection,
                send_id=send.id,
                channel=send.channel,
                worker=self.worker,
                batches=held,
                claim=claim_id,
                limit=limit,
                provider="ches",
                credential="account",
            )
        return Claim(send.id, send.channel, claim_id, datetime.now(UTC), "ches"), rows

    def record(self, claim: Claim, *results: Result) -> list[int]:
        """Record; the row numbers that were no longer ours."""
        with self.ledger.autocommit() as connection:
            return [result.row_no for result in deliveries.record(connection, claim, results)]

    def record_late(self, claim: Claim, result: Result) -> bool:
        with self.ledger.autocommit() as connection:
            return deliveries.record_late(connection, claim, result, late_claim=uuid4())

    def release(self, send: MadeSend, *, chain_no: int = 0, only: list[int] | None = None) -> None:
        with self.ledger.autocommit() as connection:
            batches.release(connection, key(send, chain_no), worker=self.worker, batches=only)

    def free(
        self, send: MadeSend, batch_no: int = 0, *, holder: UUID | None = None, looks: dict[str, float] | None = None
    ) -> int | None:
        """Free a batch; `looks` as `first_look_s`."""
        lost = AbandonedBatch(send.id, batch_no, holder or self.worker, Lane.BULK)
        with self.ledger.autocommit() as connection:
            return batches.free_abandoned(connection, lost, first_look_s=looks)

    def look(self, send: MadeSend, batch_no: int = 0, *, hold_s: float = 60.0) -> list[UnsureDelivery]:
        """Take the rows that are due for a look."""
        with self.ledger.autocommit() as connection:
            return proofs.take(connection, ProvedBatch(send.id, batch_no), hold_s=hold_s, limit=100)

    def prove(self, send: MadeSend, *results: ProofResult, batch_no: int = 0) -> list[int]:
        """Record what looks found; the row numbers that were settled by somebody else."""
        with self.ledger.autocommit() as connection:
            left = proofs.record(connection, ProvedBatch(send.id, batch_no), results)
        return [result.row.row_no for result in left]

    def sweep(self, send: MadeSend, status: DeliveryStatus, *, limit: int = 100) -> int:
        with self.ledger.autocommit() as connection:
            return batches.sweep(connection, send_id=send.id, status=status, limit=limit)

    def complete(self, send: MadeSend) -> bool:
        with self.ledger.autocommit() as connection:
            return chains.complete(connection, send.id)

    def take(self, send: MadeSend, *, limit: int = 100) -> tuple[Claim, list[ClaimedDelivery]]:
        """Register, lease everything due, and claim."""
        self.register()
        return self.claim(send, [leased.batch_no for leased in self.lease(send)], limit=limit)


def key(send: MadeSend, chain_no: int = 0) -> ChainKey:
    return ChainKey(send.id, send.channel, chain_no)


#: What a call that makes this of a row says of itself: outcome, whether it uses an attempt, seconds until the next.
SAYS: dict[DeliveryStatus, tuple[str, bool, float | None]] = {
    DeliveryStatus.SENT: ("accepted", True, None),
    DeliveryStatus.RETRYING: ("transient", True, 300.0),
    DeliveryStatus.OWED: ("throttled", False, 30.0),
    DeliveryStatus.FAILED: ("permanent", True, None),
    DeliveryStatus.DEAD_LETTERED: ("transient", True, None),
    DeliveryStatus.UNSURE: ("ambiguous", True, None),
    DeliveryStatus.SUPPRESSED: ("suppressed", True, None),
}


def ended(row: ClaimedDelivery, became: DeliveryStatus, *, ref: str | None = None) -> Result:
    """The result of a call that made `became` of a row."""
    outcome, uses, wait_s = SAYS[became]
    now = datetime.now(UTC)
    good = became is DeliveryStatus.SENT
    return Result(
        row_no=row.row_no,
        batch_no=row.batch_no,
        became=became,
        uses_attempt=uses,
        next_attempt_at=None if wait_s is None else now + timedelta(seconds=wait_s),
        ref=ref or ("ref" if good else None),
        outcome=outcome,
        code=None if good else "code",
        detail=None if good else "code: what they said",
        signature=None if good else "0123456789ab",
        ended_at=now,
        evidence={"status": "0"} if became is DeliveryStatus.UNSURE else None,
    )


def proved(row: UnsureDelivery, became: DeliveryStatus, *, again_s: float | None = None) -> ProofResult:
    """What a look makes of a row; `again_s` seconds until the next look."""
    outcome, uses, wait_s = SAYS[became]
    now = datetime.now(UTC)
    return ProofResult(
        row=row,
        became=became,
        uses_attempt=uses,
        next_attempt_at=None if wait_s is None or became is DeliveryStatus.OWED else now + timedelta(seconds=wait_s),
        prove_at=None if again_s is None else now + timedelta(seconds=again_s),
        saw_absence=again_s is not None,
        ref="found-1" if became is DeliveryStatus.SENT else None,
        receipt=None,
        outcome=outcome,
        code="proved",
        detail="what was found",
        signature=None,
        evidence={"found": "it"},
    )
