"""
Every operation is tried on a send, and on a delivery, in every state: the edges it makes are those of the code's
own table, and those that docs/state-machine.md draws. Each try is rolled back.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from uuid import UUID, uuid4

import psycopg
import pytest

from shared.domain.requeue import REQUEUEABLE, FailureFilter, OperationKind
from shared.domain.signature import failure_signature
from shared.domain.states import DELIVERY_EDGES, SEND_EDGES, Channel, DeliveryStatus, Lane, SendStatus
from shared.ledger import batches, cancelling, chains, deliveries, operations, proofs, queries, recovery, sends
from shared.ledger.batches import AbandonedBatch
from shared.ledger.db import Connection, Ledger
from shared.ledger.deliveries import Claim, ClaimedDelivery
from shared.ledger.proofs import ProvedBatch
from shared.ledger.recovery import StuckBatch, Verdict, settle_unsent
from shared.ledger.requeue import Item, work_on
from tests.integration.ledger.hand import SAYS, ended, proved
from tests.support.factories import MadeSend, make_send, make_tenant
from tests.support.ledger_rows import put_rows, put_send
from tests.support.state_machine_page import delivery_edges_made, send_edges

CLAIM = uuid4()
DEAD = uuid4()
Operation = Callable[[Connection, MadeSend], object]
Edges = set[tuple[str, str]]


def late(became: DeliveryStatus) -> Operation:
    def run(connection: Connection, send: MadeSend) -> object:
        return deliveries.record_late(connection, claim_of(send), ended(ROW, became), late_claim=uuid4())

    return run


def prove(became: DeliveryStatus) -> Operation:
    def run(connection: Connection, send: MadeSend) -> object:
        batch = ProvedBatch(send.id, 0)
        rows = proofs.take(connection, batch, hold_s=60, limit=9)
        return proofs.record(connection, batch, [proved(row, became) for row in rows])

    return run


def record(became: DeliveryStatus) -> Operation:
    return lambda connection, send: deliveries.record(connection, claim_of(send), [ended(ROW, became)])


def sweep(target: DeliveryStatus) -> Operation:
    return lambda connection, send: batches.sweep(connection, send_id=send.id, status=target, limit=9)


def claim_of(send: MadeSend) -> Claim:
    return Claim(send.id, Channel.EMAIL, CLAIM, datetime.now(UTC), "ches")


ROW = ClaimedDelivery(
    row_no=1,
    batch_no=0,
    address="",
    params=None,
    attempt_count=0,
    epoch=0,
    attempt_at=datetime.now(UTC),
    previous_attempt_at=None,
    suppressed=False,
)


def claim(connection: Connection, send: MadeSend) -> object:
    return deliveries.claim_window(
        connection,
        send_id=send.id,
        channel=Channel.EMAIL,
        worker=DEAD,
        batches=[0],
        claim=uuid4(),
        limit=9,
        provider="ches",
        credential="account",
    )


def requeue(connection: Connection, send: MadeSend) -> object:
    asked = FailureFilter(ids=((send.id, 1),), statuses=REQUEUEABLE)
    now = datetime.now(UTC) + timedelta(minutes=1)
    planned, _ = operations.plan(
        connection,
        OperationKind.REQUEUE,
        asked,
        operator="kim",
        reason=None,
        as_of=now,
        accepts_duplicates=True,
        undo_s=0,
    )
    if planned is None:
        return None
    items, takes = [Item(send.id, 1, 0)], {"takes_unsure": True, "takes_reported": True}
    return work_on(connection, OperationKind.REQUEUE, items, operation=planned.id, **takes)


def give_up(became: DeliveryStatus) -> Operation:
    signature = failure_signature(channel="email", provider="ches", outcome_class="given_up", code="c", detail="d")
    verdict = Verdict(became, "recovery_given_up", "d", "ches", signature)

    def run(connection: Connection, send: MadeSend) -> object:
        stuck = StuckBatch(tenant_id=0, send_id=send.id, batch_no=0, channel=Channel.EMAIL, lane=Lane.BULK)
        return settle_unsent(connection, stuck, verdict)

    return run


def report(connection: Connection, send: MadeSend) -> object:
    connection.execute("UPDATE delivery SET provider = 'ches', last_attempt_at = now()")
    return deliveries.settle_taken(connection, claim_of(send), row_no=1, epoch=0, ref="r", evidence={})


#: Per statement that changes a delivery's status, what calls it.
ON_DELIVERIES: dict[str, list[Operation]] = {
    "claim_window": [claim],
    "free_abandoned_batch": [
        lambda connection, send: batches.free_abandoned(connection, AbandonedBatch(send.id, 0, DEAD, Lane.BULK))
    ],
    "record_outcomes": [record(became) for became in SAYS],
    "record_late_outcome": [late(became) for became in SAYS],
    "record_proofs": [prove(became) for became in SAYS],
    "sweep_batches": [sweep(DeliveryStatus.CANCELLED), sweep(DeliveryStatus.EXPIRED)],
    "settle_unsent_rows": [give_up(DeliveryStatus.FAILED), give_up(DeliveryStatus.DEAD_LETTERED)],
    "requeue_deliveries": [requeue],
    "settle_taken_row": [report],
}


def on_sends(tenant: int) -> dict[str, list[Operation]]:
    """Per statement that changes a send's status, what calls it."""
    return {
        "start_send": [lambda connection, send: chains.start_send(connection, send.id)],
        "start_scheduled_sends": [lambda connection, send: chains.start_scheduled(connection)],
        "start_overdue_send": [lambda connection, send: recovery.start_overdue(connection, send.id)],
        "complete_send": [lambda connection, send: chains.complete(connection, send.id)],
        "pause_send": [lambda connection, send: chains.pause(connection, send.id, reason="r")],
        "pause_poisoned_send": [
            lambda connection, send: chains.pause_poisoned(connection, send.id, signature="s", most=0, reason="r")
        ],
        "begin_expired_send": [lambda connection, send: batches.begin_expired(connection, send.id)],
        "cancel_send": [lambda connection, send: sends.cancel(connection, tenant_id=tenant, send_id=send.id)],
        "begin_cancel": [lambda connection, send: cancelling.begin(connection, send.id, operator="kim", reason="r")],
        "undo_cancel": [lambda connection, send: cancelling.undo(connection, send.id)],
        "finish_cancels": [lambda connection, send: cancelling.finish(connection, limit=1_000, undo_s=0)],
        "pause_send_by_tenant": [
            lambda connection, send: sends.pause(connection, tenant_id=tenant, send_id=send.id, reason="r")
        ],
        "resume_send": [lambda connection, send: sends.resume(connection, tenant_id=tenant, send_id=send.id)],
        "record_late_outcome": [late(DeliveryStatus.RETRYING), late(DeliveryStatus.SENT)],
        "requeue_deliveries": [requeue],
    }


def statements_that_change(table: str) -> set[str]:
    """The names of the statements that write the status of rows of a table."""
    pattern = re.compile(rf"UPDATE {table}\b(?: \w+)?\s+SET status\b")
    return {name for name, text in queries._STATEMENTS.items() if pattern.search(text)}


def test_every_statement_that_changes_a_state_is_tried() -> None:
    assert set(ON_DELIVERIES) == statements_that_change("delivery")
    assert set(on_sends(0)) == statements_that_change("send")


def edges_made(ledger: Ledger, operation: Operation, send: MadeSend, query: str) -> Edges:
    with suppress(psycopg.Rollback), ledger.transaction() as connection, connection.transaction():
        before = dict(connection.execute(query).fetchall())
        operation(connection, send)
        after = dict(connection.execute(query).fetchall())
        edges = {(before[id_], after[id_]) for id_ in before if before[id_] != after[id_]}
        raise psycopg.Rollback
    return edges


def all_edges(ledger: Ledger, operations: dict[str, list[Operation]], made: list[MadeSend], query: str) -> Edges:
    found: Edges = set()
    for operation in chain.from_iterable(operations.values()):
        for send in made:
            found |= edges_made(ledger, operation, send, query)
    return found


def test_the_edges_of_deliveries_are_those_of_the_table_and_of_the_page(ledger: Ledger) -> None:
    made = []
    for status in DeliveryStatus:
        for held in (True, False):
            send = make_send(ledger, status=SendStatus.SENDING)
            due_in = "-1 second" if status is DeliveryStatus.RETRYING else None
            put_rows(ledger, send.id, [1], status, claim=CLAIM, due_in=due_in, attempts=1)
            if held:
                hold(ledger, send.id)
            made.append(send)
    being_proved = make_send(ledger, status=SendStatus.SENDING)
    put_rows(ledger, being_proved.id, [1], "unsure", claim=CLAIM, attempts=1, prove_in="-1 second")
    made.append(being_proved)
    found = all_edges(ledger, ON_DELIVERIES, made, "SELECT (send_id, row_no)::text, status FROM delivery")
    assert found <= DELIVERY_EDGES
    assert found == delivery_edges_made()


def hold(ledger: Ledger, send_id: UUID) -> None:
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE batch SET holder = %s, chain_no = 0, leased_at = now() WHERE send_id = %s", [DEAD, send_id]
        )


@pytest.mark.parametrize("open_row", [True, False], ids=["with-a-row-owed", "with-nothing-open"])
def test_the_edges_of_sends_are_those_of_the_table_and_of_the_page(ledger: Ledger, open_row: bool) -> None:
    with ledger.transaction() as connection:
        tenant, _ = make_tenant(connection)
    made = []
    for status in SendStatus:
        for send_at in (None, "1 hour", "-1 hour"):
            for valid_until in (None, "-1 second"):
                for started in (True, False):
                    send = make_send(ledger, count=2, send_at=send_at, valid_until=valid_until)
                    put_rows(ledger, send.id, [1], "unsure", claim=CLAIM, attempts=1)
                    put_rows(ledger, send.id, [2], "owed" if open_row else "sent")
                    put_send(ledger, send.id, status)
                    with ledger.autocommit() as connection:
                        connection.execute(
                            "UPDATE send SET settled_counts = CASE WHEN status IN ('completed', 'cancelled')"
                            " THEN '{}'::jsonb END, started_at = CASE WHEN %s THEN now() ELSE started_at END,"
                            " cancel_asked_by = 'kim', cancel_asked_at = CASE WHEN status = 'paused' THEN now() END,"
                            " paused_at = CASE WHEN status = 'paused' THEN now() END"
                            " WHERE id = %s",
                            [started and status is SendStatus.PAUSED, send.id],
                        )
                    made.append(send)
    found = all_edges(ledger, on_sends(tenant), made, "SELECT id, status FROM send")
    expected = SEND_EDGES - ({(SendStatus.SENDING, SendStatus.COMPLETED)} if open_row else set())
    assert found == expected
    assert send_edges() == SEND_EDGES
