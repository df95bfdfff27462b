"""What looks at unsure deliveries found, written down: rows, attempts, groups of failures, suppressions."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from shared.domain.masking import mask_text
from shared.domain.outcome import Outcome, Suppressed, name_of
from shared.domain.proof import Verdict
from shared.domain.signature import FailureSignature, failure_signature
from shared.domain.states import DeliveryStatus
from shared.ledger import deliveries, proofs, providers, receipts
from shared.ledger.chains import SendContent
from shared.ledger.db import Connection, Ledger
from shared.ledger.deliveries import Claim, Result
from shared.ledger.proofs import ProofResult, ProvedBatch, UnsureDelivery

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Case:
    """A row on its way through one look."""

    batch: ProvedBatch
    send: SendContent
    row: UnsureDelivery


def record_verdicts(
    ledger: Ledger, batch: ProvedBatch, judged: Sequence[tuple[Case, Verdict]], *, provider: str
) -> None:
    """Record what was made of looks at rows of one batch."""
    with ledger.transaction() as connection:
        judged = _without_those_of_others(connection, judged)
        signed = [(case, verdict, _sign(case, verdict, provider=provider)) for case, verdict in judged]
        results = [_result(case, verdict, failure) for case, verdict, failure in signed]
        left = proofs.record(connection, batch, results)
        # After the batch, as windows do it, and in order: neither waits for the other crosswise.
        groups = {failure.id: (failure, case, outcome) for case, outcome, failure in _failures(signed)}
        for _, (failure, case, outcome) in sorted(groups.items()):
            channel = case.row.channel
            deliveries.note_failure_group(
                connection, failure, channel=channel, provider=provider, outcome=name_of(outcome)
            )
        for case, verdict in sorted(judged, key=lambda each: each[0].row.address):
            if isinstance(verdict.outcome, Suppressed):
                deliveries.suppress(
                    connection,
                    tenant_id=case.send.tenant_id,
                    channel=case.row.channel,
                    addresses=[case.row.address],
                    reason=f"refused by {provider}",
                )
        took = [case.row for case, verdict in judged if verdict.status is DeliveryStatus.SENT]
        if took:
            at = max(row.attempt_at for row in took)
            providers.note_taken(connection, provider=provider, credential=took[0].credential or "", at=at)
    for result in left:
        if result.became is DeliveryStatus.SENT:
            # Parked meanwhile, or settled: that it was taken is true all the same. Its locks begin with the send.
            with ledger.transaction() as connection:
                _record_late(connection, batch, result)
    for result in results:
        if result.prove_at is None:
            which = {"send_id": str(batch.send_id), "row_no": result.row.row_no}
            _log.info("delivery_proved", extra={**which, "became": result.became.value, "code": result.code})


_Signed = tuple[Case, Verdict, FailureSignature | None]


def _failures(signed: Sequence[_Signed]) -> Iterator[tuple[Case, Outcome, FailureSignature]]:
    for case, verdict, failure in signed:
        if failure is not None and verdict.outcome is not None:
            yield case, verdict.outcome, failure


def _sign(case: Case, verdict: Verdict, *, provider: str) -> FailureSignature | None:
    if verdict.outcome is None:
        return None
    return failure_signature(
        channel=case.row.channel.value,
        provider=provider,
        outcome_class=name_of(verdict.outcome),
        code=verdict.code,
        detail=mask_text(verdict.detail),
    )


def _result(case: Case, verdict: Verdict, failure: FailureSignature | None) -> ProofResult:
    return ProofResult(
        row=case.row,
        became=verdict.status,
        uses_attempt=verdict.uses_attempt,
        next_attempt_at=verdict.next_attempt_at,
        prove_at=verdict.prove_at,
        saw_absence=verdict.saw_absence,
        ref=verdict.ref,
        receipt=verdict.receipt,
        outcome=_outcome_name(verdict),
        code=verdict.code,
        detail=mask_text(verdict.detail),
        signature=None if failure is None else failure.id,
        evidence={key: mask_text(value) for key, value in verdict.evidence.items()},
    )


def _outcome_name(verdict: Verdict) -> str:
    """The outcome that the attempt's row carries: what the call in question turned out to have come to."""
    if verdict.outcome is not None:
        return name_of(verdict.outcome)
    match verdict.status:
        case DeliveryStatus.SENT:
            return "accepted"
        case DeliveryStatus.UNSURE:
            return "ambiguous"
        case _:
            return "transient"  # absent: surely not taken


def _without_those_of_others(
    connection: Connection, judged: Sequence[tuple[Case, Verdict]]
) -> list[tuple[Case, Verdict]]:
    """A message found by its looks may be another delivery's; where the ledger knows that, nothing is proved."""
    left = []
    for case, verdict in sorted(judged, key=lambda each: each[1].ref or ""):
        if verdict.ref is not None and verdict.by_likeness:
            send_id, row_no = case.batch.send_id, case.row.row_no
            if receipts.is_of_another(connection, ref=verdict.ref, send_id=send_id, row_no=row_no):
                detail = "the only message like it is another delivery's"
                left.append((case, Verdict(DeliveryStatus.UNSURE, "unprovable", detail)))
                continue
        left.append((case, verdict))
    return left


def _record_late(connection: Connection, batch: ProvedBatch, result: ProofResult) -> None:
    row = result.row
    claim = Claim(batch.send_id, row.channel, row.claim_id, row.attempt_at, row.provider or "unknown")
    late = Result(
        row_no=row.row_no,
        batch_no=batch.batch_no,
        became=DeliveryStatus.SENT,
        uses_attempt=True,
        next_attempt_at=None,
        ref=result.ref,
        outcome=result.outcome,
        code=result.code,
        detail=None,
        signature=None,
        ended_at=datetime.now(UTC),
        evidence=result.evidence,
    )
    deliveries.record_late(connection, claim, late, late_claim=uuid4())
