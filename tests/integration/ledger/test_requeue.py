"""Requeue by a person: who qualifies, what a chunk does to a row, its batch and its send, and every guard."""

import threading
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from shared.domain.ids import delivery_key, new_send_id
from shared.domain.requeue import FailureFilter, LeftOut, OperationKind
from shared.domain.states import Channel, DeliveryStatus, SendStatus
from shared.ledger import chains, deliveries, operation_results, operations, sends
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, ended
from tests.support.factories import MadeSend, books, counts, make_send, send_status
from tests.support.ledger_rows import batch, delivery, one, put_rows, put_send, scalar, wait_for_a_lock
from tests.support.minutes import agree
from tests.support.requeuing import chunk, finish, of, operation, plan, preview, try_plan

pytestmark = pytest.mark.usefixtures("balanced")
EVERY = frozenset({DeliveryStatus.FAILED, DeliveryStatus.DEAD_LETTERED, DeliveryStatus.UNSURE})


def failed(
    ledger: Ledger,
    status: str = "dead_lettered",
    *,
    count: int = 1,
    addresses: list[str] | None = None,
    send: str = "completed",
) -> MadeSend:
    """A send all of whose rows have settled as this."""
    made = make_send(ledger, count=count, addresses=addresses, status=SendStatus.SENDING)
    put_rows(ledger, made.id, range(1, count + 1), status, attempts=1)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET first_attempt_at = now() WHERE send_id = %s", [made.id])
        if send == "completed":
            assert chains.complete(connection, made.id)
    if send not in ("completed", "sending"):
        put_send(ledger, made.id, SendStatus(send))
    return made


@pytest.mark.parametrize("status", ["failed", "dead_lettered"])
def test_a_requeued_delivery_is_owed_again_with_all_its_attempts_under_another_key(ledger: Ledger, status: str) -> None:
    send = failed(ledger, status)
    made = plan(ledger, of(send))
    finish(ledger)
    row = delivery(ledger, send.id)
    assert (row["status"], row["attempt_count"], row["epoch"], row["settled_at"]) == ("owed", 0, 1, None)
    assert (row["next_attempt_at"], row["claim_id"], row["last_attempt_at"]) == (None, None, None)
    assert delivery_key(send.id, 1, row["epoch"]) != delivery_key(send.id, 1, 0)
    assert books(ledger, send.id) == {"owed": 1}
    assert batch(ledger, send.id)["due_in_s"] <= 0
    now = one(ledger, "SELECT status, completed_at, settled_counts FROM send")
    assert now == {"status": "sending", "completed_at": None, "settled_counts": None}
    over = operation(ledger, made.id)
    assert (over.status, over.done, over.skipped, over.total) == ("done", 1, 0, 1)


def test_a_requeued_delivery_is_claimed_and_sent_and_its_send_completed_again(ledger: Ledger, hand: Hand) -> None:
    send = failed(ledger, count=3)
    plan(ledger, of(send))
    finish(ledger)
    claim, rows = hand.take(send)
    assert [(row.epoch, row.attempt_count, row.previous_attempt_at) for row in rows] == [(1, 0, None)] * 3
    hand.record(claim, *(ended(row, DeliveryStatus.SENT) for row in rows))
    hand.release(send)
    assert hand.complete(send)
    assert books(ledger, send.id) == {"sent": 3}


def test_a_held_batch_takes_rows_back_while_its_holder_works_on(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=4, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2], "dead_lettered", attempts=1)
    claim, rows = hand.take(send)
    plan(ledger, of(send))
    finish(ledger)
    assert counts(ledger, send.id) == {"owed": 2, "sending": 2}
    hand.record(claim, *(ended(row, DeliveryStatus.SENT) for row in rows))
    hand.release(send)
    assert batch(ledger, send.id)["due_in_s"] <= 0


def test_the_patience_with_the_provider_begins_anew(ledger: Ledger) -> None:
    send = failed(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET created_at = now() - interval '9 days'")
    plan(ledger, of(send))
    finish(ledger)
    with ledger.autocommit() as connection:
        content = chains.load_send(connection, send.id)
    assert content is not None
    assert (content.owed_since - content.created_at).days == 9


def test_unsure_deliveries_need_the_explicit_acceptance_of_duplicates(ledger: Ledger) -> None:
    send = failed(ledger, "unsure")
    named = of(send, statuses=EVERY)
    for asked, accepts in ((of(send), True), (named, False)):
        made, seen = try_plan(ledger, asked, accepts_duplicates=accepts)
        assert made is None
        assert seen is not None
        assert (seen.total, seen.left_out) == (0, {LeftOut.UNSURE: 1})
    assert scalar(ledger, "SELECT count(*) FROM operation") == scalar(ledger, "SELECT count(*) FROM audit") == 0
    plan(ledger, named, accepts_duplicates=True)
    finish(ledger)
    row = delivery(ledger, send.id)
    assert (row["status"], row["epoch"], row["claim_id"], row["prove_count"]) == ("owed", 1, None, 0)
    assert scalar(ledger, "SELECT result FROM audit WHERE action = 'requeue'") == "accepted possible duplicates"


def test_what_is_still_being_proved_is_left_to_the_machine(ledger: Ledger) -> None:
    send = failed(ledger, "unsure", send="sending")
    with ledger.transaction() as connection:
        connection.execute("UPDATE delivery SET prove_at = now() + interval '1 minute', settled_at = NULL")
        connection.execute("UPDATE batch SET proving = 1, settled_at = NULL, prove_at = now() + interval '1 minute'")
    seen = preview(ledger, of(send, statuses=EVERY), accepts_duplicates=True)
    assert (seen.total, seen.left_out) == (0, {LeftOut.PROVING: 1})


def test_what_is_being_proved_again_by_the_time_of_its_chunk_is_skipped(ledger: Ledger) -> None:
    send = failed(ledger, "unsure", send="sending")
    made = plan(ledger, of(send, statuses=EVERY), accepts_duplicates=True)
    with ledger.transaction() as connection:
        connection.execute("UPDATE delivery SET prove_at = now() + interval '1 minute', settled_at = NULL")
        connection.execute("UPDATE batch SET proving = 1, settled_at = NULL, prove_at = now() + interval '1 minute'")
    finish(ledger)
    assert (operation(ledger, made.id).skipped, counts(ledger, send.id)) == (1, {"unsure": 1})


def test_what_cannot_be_sent_is_left_out_and_said(ledger: Ledger) -> None:
    cancelled = failed(ledger, send="cancelled")
    expired = failed(ledger)
    failed(ledger, addresses=["Gone@example.com"])
    refused = failed(ledger, "failed", send="pending")
    good = failed(ledger)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET valid_until = now() - interval '1 second' WHERE id = %s", [expired.id])
        connection.execute(
            "INSERT INTO suppression SELECT s.tenant_id, 'email', 'gone@example.com', 'r' FROM send s LIMIT 1"
        )
        connection.execute("UPDATE failure SET refused = true WHERE send_id = %s", [refused.id])
    seen = preview(ledger, FailureFilter())
    assert seen.left_out == {
        LeftOut.CANCELLED: 1,
        LeftOut.EXPIRED: 1,
        LeftOut.SUPPRESSED: 1,
        LeftOut.REFUSED: 1,
    }
    assert [(share.tenant, share.channel, share.status, share.count) for share in seen.taken] == [
        ("acme", Channel.EMAIL, DeliveryStatus.DEAD_LETTERED, 1)
    ]
    plan(ledger, FailureFilter())
    finish(ledger)
    assert counts(ledger, good.id) == {"owed": 1}
    assert counts(ledger, cancelled.id) == {"dead_lettered": 1}


def test_a_paused_send_keeps_waiting(ledger: Ledger) -> None:
    send = failed(ledger, send="paused")
    plan(ledger, of(send))
    finish(ledger)
    assert (send_status(ledger, send.id), counts(ledger, send.id)) == ("paused", {"owed": 1})


def test_what_fails_after_the_preview_is_not_swept_in(ledger: Ledger) -> None:
    early = failed(ledger)
    as_of = preview(ledger, FailureFilter()).as_of
    late = failed(ledger)
    made, frozen = try_plan(ledger, FailureFilter(), as_of=as_of)
    assert made is not None
    assert frozen is not None
    assert (made.total, frozen.left_out) == (1, {LeftOut.LATE: 1})
    finish(ledger)
    assert (counts(ledger, early.id), counts(ledger, late.id)) == ({"owed": 1}, {"dead_lettered": 1})


def test_the_filter_is_the_set(ledger: Ledger) -> None:
    email = failed(ledger, count=2)
    sms = make_send(ledger, count=1, channel=Channel.SMS, status=SendStatus.SENDING, tenant="other")
    put_rows(ledger, sms.id, [1], "failed")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET first_attempt_at = now()")
        connection.execute(
            "UPDATE failure SET failed_at = now() - interval '2 hours' WHERE send_id = %s AND row_no = 1", [email.id]
        )
        hour = connection.execute("SELECT now() - interval '1 hour'").fetchone()
    assert hour is not None

    def total(**asked: object) -> int:
        return preview(ledger, FailureFilter(**asked)).total  # type: ignore[arg-type]

    assert total() == 3
    assert total(channel=Channel.SMS) == total(tenant="other") == total(send_id=sms.id) == 1
    assert total(statuses=frozenset({DeliveryStatus.DEAD_LETTERED})) == 2
    assert total(since=hour[0]) == 2
    assert total(tenant="nobody") == total(send_id=new_send_id()) == 0


def test_a_cause_is_that_of_the_failure_which_settled_the_delivery(ledger: Ledger, hand: Hand) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    with ledger.autocommit() as connection:
        # A try before the last, and one whose outcome was not known at first, are not its cause.
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
            " signature, started_at, ended_at) SELECT send_id, row_no, gen_random_uuid(), 0, 0, channel, 'ches',"
            " 'transient', became, '0123456789ab', now(), now() FROM delivery,"
            " (VALUES ('retrying'), ('unsure')) AS before (became) WHERE row_no = 3"
        )
    results = [ended(row, DeliveryStatus.DEAD_LETTERED) for row in rows]
    hand.record(claim, *results[:2], replace(results[2], signature="ba9876543210"))
    hand.release(send)
    with ledger.autocommit() as connection:
        # Nor is the end of a life before a requeue.
        connection.execute("UPDATE delivery SET epoch = 1, attempt_count = 0 WHERE row_no = 2")
    asked = FailureFilter(signature="0123456789ab")
    assert preview(ledger, asked).total == 1
    plan(ledger, asked)
    finish(ledger)
    assert counts(ledger, send.id) == {"owed": 1, "dead_lettered": 2}
    assert preview(ledger, asked).total == 0


def test_ids_that_cannot_be_requeued_are_counted_with_their_reasons(ledger: Ledger) -> None:
    send = failed(ledger, count=3)
    put_rows(ledger, send.id, [2], "sent", attempts=1)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET settled_counts = NULL, status = 'sending', completed_at = NULL")
    ids = ((send.id, 1), (send.id, 2), (send.id, 9), (uuid4(), 1))
    seen = preview(ledger, FailureFilter(ids=ids))
    assert (seen.total, seen.left_out) == (1, {LeftOut.STATE: 1, LeftOut.MISSING: 2})


def test_seventy_thousand_ids_at_once(ledger: Ledger) -> None:
    send = make_send(ledger, count=70_000, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        connection.execute("UPDATE delivery SET status = 'failed', settled_at = now(), first_attempt_at = now()")
        connection.execute("UPDATE batch SET failed = owed, owed = 0, due_at = NULL, settled_at = now()")
        agree(connection)
    asked = FailureFilter(ids=tuple((send.id, row_no) for row_no in range(1, 70_001)))
    assert plan(ledger, asked).total == 70_000
    with ledger.transaction() as connection:
        assert chunk(connection, size=500) == 500
    assert counts(ledger, send.id) == {"owed": 500, "failed": 69_500}


def test_a_double_click_is_one_operation(ledger: Ledger) -> None:
    send = failed(ledger, count=2)
    as_of = preview(ledger, of(send)).as_of
    first, frozen = try_plan(ledger, of(send), as_of=as_of)
    again, nothing = try_plan(ledger, of(send), as_of=as_of)
    assert first == again
    assert frozen is not None
    assert nothing is None
    finish(ledger)
    assert delivery(ledger, send.id)["epoch"] == 1
    over, _ = try_plan(ledger, of(send), as_of=as_of)
    assert over is not None
    assert (over.id, over.status) == (first.id if first else None, "done")
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE action = 'requeue'") == 1


def test_two_clicks_at_the_same_moment_are_one_operation(ledger: Ledger) -> None:
    send = failed(ledger, count=2)
    as_of = preview(ledger, of(send)).as_of
    start = threading.Barrier(2)
    made: list[UUID] = []

    def click() -> None:
        start.wait()
        made.append(plan(ledger, of(send), as_of=as_of).id)

    threads = [threading.Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 2
    assert len(set(made)) == scalar(ledger, "SELECT count(*) FROM operation") == 1
    assert scalar(ledger, "SELECT count(*) FROM operation_item") == 2


def test_of_two_operators_at_once_one_requeues_and_the_other_skips(ledger: Ledger) -> None:
    send = failed(ledger, count=3)
    as_of = preview(ledger, of(send)).as_of
    with ledger.transaction() as connection:
        connection.execute("SELECT 1")  # begins the transaction
        mine, _ = operations.plan(
            connection, OperationKind.REQUEUE, of(send), operator="kim", reason=None, as_of=as_of, undo_s=0
        )
        theirs = plan(ledger, of(send), operator="lee", as_of=as_of)
    assert mine is not None
    finish(ledger)
    assert (operation(ledger, theirs.id).done, operation(ledger, mine.id).done) in ((3, 0), (0, 3))
    assert {one(ledger, "SELECT epoch FROM delivery WHERE row_no = %s", n)["epoch"] for n in (1, 2, 3)} == {1}
    assert scalar(ledger, "SELECT count(*) FROM operation_item WHERE why = 'state'") == 3


def test_what_was_requeued_and_failed_again_meanwhile_is_skipped(ledger: Ledger) -> None:
    send = failed(ledger)
    made = plan(ledger, of(send))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET epoch = 1, attempt_count = 0")
    finish(ledger)
    assert operation(ledger, made.id).skipped == 1
    assert (delivery(ledger, send.id)["status"], delivery(ledger, send.id)["epoch"]) == ("dead_lettered", 1)


def test_what_another_open_operation_has_is_left_out(ledger: Ledger) -> None:
    send = failed(ledger, count=3)
    plan(ledger, FailureFilter(ids=((send.id, 1),)), undo_s=60)
    assert preview(ledger, of(send)).left_out == {LeftOut.TAKEN: 1}


@pytest.mark.parametrize("what", ["cancelled", "expired", "sent"])
def test_what_changes_after_the_plan_is_skipped_with_the_reason(ledger: Ledger, what: str) -> None:
    send = failed(ledger, count=2, send="sending")
    made = plan(ledger, of(send))
    with ledger.autocommit() as connection:
        if what == "cancelled":
            row = connection.execute("SELECT tenant_id FROM send").fetchone()
            assert row is not None
            assert sends.cancel(connection, tenant_id=row[0], send_id=send.id)
        elif what == "expired":
            connection.execute("UPDATE send SET valid_until = now() - interval '1 second'")
    if what == "sent":
        put_rows(ledger, send.id, [1, 2], "sent", attempts=1)
    finish(ledger)
    over = operation(ledger, made.id)
    assert (over.status, over.done, over.skipped) == ("done", 0, 2)
    with ledger.autocommit() as connection:
        assert operation_results.skips(connection, made.id) == {LeftOut(what if what != "sent" else "state"): 2}


def test_late_proof_before_the_chunk_wins_and_the_item_is_skipped(ledger: Ledger, hand: Hand) -> None:
    send, claim, rows = parked(ledger, hand)
    made = plan(ledger, of(send, statuses=EVERY), accepts_duplicates=True)
    assert hand.record_late(claim, ended(rows[0], DeliveryStatus.SENT))
    finish(ledger)
    assert (operation(ledger, made.id).done, operation(ledger, made.id).skipped) == (0, 1)
    assert counts(ledger, send.id) == {"sent": 1}


def test_a_proof_that_comes_after_the_requeue_finds_nothing(ledger: Ledger, hand: Hand) -> None:
    send, claim, rows = parked(ledger, hand)
    plan(ledger, of(send, statuses=EVERY), accepts_duplicates=True)
    finish(ledger)
    assert not hand.record_late(claim, ended(rows[0], DeliveryStatus.SENT))
    assert counts(ledger, send.id) == {"owed": 1}


def test_late_proof_and_requeue_at_the_same_moment_never_both(ledger: Ledger, hand: Hand) -> None:
    send, claim, rows = parked(ledger, hand)
    made = plan(ledger, of(send, statuses=EVERY), accepts_duplicates=True)
    proved: list[bool] = []
    with ledger.transaction() as connection:
        assert chunk(connection) == 1
        late = threading.Thread(
            target=lambda: proved.append(hand.record_late(claim, ended(rows[0], DeliveryStatus.SENT)))
        )
        late.start()
        wait_for_a_lock(ledger)
    late.join(timeout=20)
    assert (proved, operation(ledger, made.id).done, counts(ledger, send.id)) == ([False], 1, {"owed": 1})


def test_a_send_that_is_being_finished_at_this_moment_stays_open(ledger: Ledger) -> None:
    send = failed(ledger, send="sending")
    plan(ledger, of(send))
    finished: list[bool] = []

    def finish_send() -> None:
        with ledger.autocommit() as own:
            finished.append(chains.complete(own, send.id))

    with ledger.transaction() as connection:
        assert chunk(connection) == 1
        other = threading.Thread(target=finish_send)
        other.start()
        wait_for_a_lock(ledger)
    other.join(timeout=20)
    assert (finished, send_status(ledger, send.id), counts(ledger, send.id)) == ([False], "sending", {"owed": 1})


def test_what_failed_again_is_not_what_is_tried_first(ledger: Ledger) -> None:
    send = failed(ledger, count=20)
    plan(ledger, of(send, ids=((send.id, 1), (send.id, 2)), statuses=EVERY))
    finish(ledger)
    put_rows(ledger, send.id, [1, 2], "dead_lettered")
    made = plan(ledger, of(send), canary=True)
    with ledger.transaction() as connection:
        taken = operations.take(connection)
        assert taken is not None
        assert (taken.id, taken.is_trying) == (made.id, True)
        assert [item.row_no for item in operations.next_items(connection, taken, limit=1)] == [3]
        later = replace(taken, done=12)
        assert [item.row_no for item in operations.next_items(connection, later, limit=1)] == [1]


def parked(ledger: Ledger, hand: Hand) -> tuple[MadeSend, deliveries.Claim, list[deliveries.ClaimedDelivery]]:
    """A call whose worker died: its row is unsure, and its answer may still come."""
    send = make_send(ledger, status=SendStatus.SENDING)
    claim, rows = hand.take(send)
    hand.die()
    assert hand.free(send) == 1
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET proving = 0, prove_at = NULL, settled_at = now()")
        connection.execute("UPDATE delivery SET prove_at = NULL")
    return send, claim, rows
