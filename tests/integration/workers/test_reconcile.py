"""The reconciler: each kind of stuck work with inserted ages, what it leaves alone, and what it gives up."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import redis

from shared.accounts import credential_of
from shared.coordination.circuit import Circuit
from shared.coordination.gate import Gate
from shared.domain.signature import failure_signature
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus
from shared.jobs import QueueName
from shared.ledger import batches, chains, providers, recovery
from shared.ledger.chains import ChainKey
from shared.ledger.db import Ledger
from shared.ledger.recovery import Pass, Verdict
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend, books, counts, make_send, send_status
from tests.support.ledger_rows import attempts, batch, delivery, put_outage, put_rows, put_send, scalar

SENDING = SendStatus.SENDING


def last_pass(ledger: Ledger) -> Pass:
    with ledger.autocommit() as connection:
        return recovery.passes(connection, limit=1)[0]


def found(ledger: Ledger) -> dict[str, dict[str, int]]:
    """What the last pass did, zeros left out."""
    return {kind: {name: n for name, n in each.items() if n} for kind, each in last_pass(ledger).counts.items()}


def hold(ledger: Ledger, send: MadeSend, holder: UUID, *, ago: str = "1 second", progress: str | None = None) -> None:
    """Let a worker hold every batch and the chain of a send; `progress` is how long ago it recorded anything."""
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE batch SET holder = %s, chain_no = 0, leased_at = now() - %s::interval,"
            " progress_at = now() - %s::interval WHERE send_id = %s AND settled_at IS NULL",
            [holder, ago, progress or ago, send.id],
        )
        connection.execute(
            "INSERT INTO chain (send_id, channel, chain_no, token, holder, queued_at, started_at)"
            " VALUES (%s, %s, 0, gen_random_uuid(), %s, now() - %s::interval, now())",
            [send.id, send.channel.value, holder, ago],
        )


def flush(worker: InProcess) -> None:
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        client.flushall()


# --- kinds ------------------------------------------------------------------------------------------------------


def events(ledger: Ledger, send: MadeSend) -> list[tuple[Any, ...]]:
    """What a send's page tells of recoveries: kind, batch, deliveries."""
    with ledger.autocommit() as connection:
        query = "SELECT kind, batch_no, deliveries FROM send_event WHERE send_id = %s ORDER BY id"
        return connection.execute(query, [send.id]).fetchall()


def test_pending_a_send_accepted_while_redis_was_away_is_picked_up_after_half_a_minute(
    ledger: Ledger, worker: InProcess
) -> None:
    fresh = make_send(ledger, age="20 seconds")
    waiting = make_send(ledger, age="31 seconds")
    worker.reconcile()
    assert found(ledger) == {"pending": {"found": 1, "requeued": 1}}
    assert events(ledger, waiting) == [("message_lost", None, None)]
    worker.work_off()
    assert counts(ledger, waiting.id) == {"sent": 1}
    assert send_status(ledger, fresh.id) == "pending"


def test_pending_a_send_for_tomorrow_is_scheduled_and_not_begun(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, age="1 minute", send_at="1 day")
    worker.reconcile()
    worker.work_off()
    assert send_status(ledger, send.id) == "scheduled"
    assert counts(ledger, send.id) == {"owed": 1}


def test_pending_a_send_whose_message_of_an_earlier_pass_still_waits_is_left_alone(
    ledger: Ledger, worker: InProcess
) -> None:
    make_send(ledger, age="1 hour")
    worker.reconcile()
    worker.reconcile()
    assert found(ledger) == {}
    assert len(worker.messages(QueueName.INGEST)) == 1
    flush(worker)
    worker.reconcile()
    assert found(ledger) == {"pending": {"found": 1, "requeued": 1}}
    worker.work_off()


def test_ingestion_a_resumed_send_nobody_fanned_out_is_picked_up_after_ten_minutes(
    ledger: Ledger, worker: InProcess
) -> None:
    fresh = make_send(ledger, age="9 minutes", status=SendStatus.QUEUED)
    resumed = make_send(ledger, age="1 day", status=SendStatus.QUEUED)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET resumed_at = now() - interval '1 minute' WHERE id = %s", [resumed.id])
    waiting = make_send(ledger, age="11 minutes", status=SendStatus.QUEUED)
    worker.reconcile()
    assert found(ledger) == {"ingestion": {"found": 1, "requeued": 1}}
    worker.work_off()
    assert [send_status(ledger, each.id) for each in (waiting, fresh, resumed)] == ["completed", "queued", "queued"]


def test_scheduled_a_send_ten_minutes_past_its_time_begins(ledger: Ledger, worker: InProcess) -> None:
    late = make_send(ledger, send_at="-11 minutes", status=SendStatus.SCHEDULED)
    due = make_send(ledger, send_at="-9 minutes", status=SendStatus.SCHEDULED)
    to_come = make_send(ledger, send_at="26 hours", age="2 days", status=SendStatus.SCHEDULED)
    worker.reconcile()
    assert found(ledger) == {"scheduled": {"found": 1, "retried": 1}}
    assert events(ledger, late) == [("overdue", None, None)]
    worker.work_off()
    assert [send_status(ledger, each.id) for each in (late, due, to_come)] == ["completed", "scheduled", "scheduled"]


@pytest.mark.parametrize(("lane", "kind"), [(Lane.BULK, "batch"), (Lane.SINGLE, "delivery")])
def test_a_dead_holders_batch_is_free_at_once_and_its_calls_in_flight_are_unsure(
    ledger: Ledger, worker: InProcess, lane: Lane, kind: str
) -> None:
    send = make_send(ledger, count=5, lane=lane, status=SENDING)
    put_rows(ledger, send.id, [1], "sending")
    hold(ledger, send, uuid4())
    worker.reconcile()
    assert found(ledger)[kind] == {"found": 2, "retried": 1, "requeued": 1}
    assert events(ledger, send) == [("worker_died", 0, 1), ("message_lost", None, None)]
    assert batch(ledger, send.id)["recovery_count"] == 1
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 4, "unsure": 1}
    assert batch(ledger, send.id)["recovery_count"] == 0


def test_a_living_holder_that_records_nothing_for_ten_minutes_loses_its_batch_and_its_chain(
    ledger: Ledger, worker: InProcess, make_worker: MakeWorker
) -> None:
    hung = make_worker()
    send = make_send(ledger, count=3, status=SENDING)
    put_rows(ledger, send.id, [1], "sending")
    hold(ledger, send, hung.runtime.lease.worker, ago="11 minutes")
    worker.reconcile()
    assert found(ledger) == {"batch": {"found": 1, "retried": 1}}
    assert attempts(ledger, send.id)[0]["code"] == "worker_hung"
    assert events(ledger, send)[0] == ("worker_hung", 0, 1)
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 2, "unsure": 1}


def test_mending_finds_what_no_other_finder_would(ledger: Ledger, worker: InProcess) -> None:
    in_a_call, not_due, not_settled = (make_send(ledger, status=SENDING) for _ in range(3))
    put_rows(ledger, in_a_call.id, [1], "sending")
    put_rows(ledger, not_settled.id, [1], "sent")
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = NULL WHERE send_id = %s", [not_due.id])
        connection.execute("UPDATE batch SET settled_at = NULL WHERE send_id = %s", [not_settled.id])
    worker.reconcile()
    worker.work_off()
    worker.tick()
    assert counts(ledger, in_a_call.id) == {"unsure": 1}
    assert counts(ledger, not_due.id) == {"sent": 1}
    assert [send_status(ledger, each.id) for each in (in_a_call, not_due, not_settled)] == ["completed"] * 3


# --- what is left alone -------------------------------------------------------------------------------------------


def test_slow_is_not_stuck_a_holder_that_recorded_something_is_left_alone(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=3, status=SENDING, age="2 hours")
    hold(ledger, send, worker.runtime.lease.worker, ago="2 hours", progress="9 minutes")
    worker.reconcile()
    assert found(ledger) == {}
    assert batch(ledger, send.id)["holder"] == worker.runtime.lease.worker
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET holder = NULL, chain_no = NULL, leased_at = NULL")


def test_a_chain_whose_message_waits_is_left_alone_and_one_whose_message_is_lost_is_rebuilt(
    ledger: Ledger, worker: InProcess
) -> None:
    waits, lost = (make_send(ledger, count=2, status=SENDING, age="1 day") for _ in range(2))
    for send in (waits, lost):
        worker.start(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE chain SET queued_at = now() - interval '1 day'")
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        token = scalar(ledger, "SELECT token::text FROM chain WHERE send_id = %s", lost.id)
        client.hdel(f"{worker.broker.namespace}:email_bulk.msgs", token)
        client.lrem(f"{worker.broker.namespace}:email_bulk", 0, token)
    worker.reconcile()
    assert found(ledger) == {"batch": {"found": 1, "requeued": 1}}
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 2
    worker.work_off()


@pytest.mark.parametrize("wait", ["gate", "circuit", "hold", "paused"])
def test_a_wait_is_no_recovery_however_long_it_lasts(ledger: Ledger, ches: InProcess, wait: str) -> None:
    send = make_send(ledger, count=3, status=SENDING, age="70 hours")
    if wait == "paused":
        put_send(ledger, send.id, SendStatus.PAUSED)
    else:
        hold_back(ches, wait)
    for _ in range(7):
        ches.reconcile()
        ches.tick()
    assert found(ledger) == {}
    assert ches.messages(QueueName.EMAIL_BULK) == []
    assert batch(ledger, send.id)["recovery_count"] == 0
    assert counts(ledger, send.id) == {"owed": 3}


def hold_back(worker: InProcess, how: str) -> None:
    named = {"provider": "ches", "credential": credential_of(worker.settings, "ches")}
    circuit = Circuit(worker.runtime.link, **named)
    if how == "gate":
        Gate(worker.runtime.link, **named).close(3_000)
    elif how == "hold":
        circuit.hold(by="somebody", reason="maintenance")
    else:
        for _ in range(5):
            permit = circuit.require()
            circuit.report(permit, failures=1)


# --- giving up ----------------------------------------------------------------------------------------------------


def test_after_five_recoveries_without_progress_a_batch_fails_its_own_unsent_rows_and_the_send_ends(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=50, status=SENDING)
    put_rows(ledger, send.id, range(26, 51), "sent")
    put_rows(ledger, send.id, [1], "sent")
    put_rows(ledger, send.id, [2], "retrying", attempts=1)
    for number in range(5):
        hold(ledger, send, uuid4())
        worker.reconcile()
        assert batch(ledger, send.id)["recovery_count"] == number + 1
        flush(worker)
        with ledger.autocommit() as connection:
            connection.execute("DELETE FROM chain")
    hold(ledger, send, uuid4())
    worker.reconcile()
    assert counts(ledger, send.id) == {"sent": 26, "failed": 24}
    assert books(ledger, send.id) == {"sent": 26, "failed": 24}
    assert found(ledger)["batch"]["given_up"] == 1
    assert events(ledger, send)[-1] == ("recovery_given_up", 0, 24)
    assert send_status(ledger, send.id) == "completed"
    assert delivery(ledger, send.id, 3)["last_error"].startswith("given up: recovered 5 times without progress")
    assert attempts(ledger, send.id, 2)[-1]["outcome"] == "recovery_given_up"
    assert scalar(ledger, "SELECT title FROM failure_group").startswith("recovery_given_up")


def test_what_an_open_circuit_kept_waiting_for_three_days_is_dead_lettered_without_a_call(
    ledger: Ledger, ches: InProcess
) -> None:
    old = make_send(ledger, count=3, status=SENDING, age="73 hours")
    put_rows(ledger, old.id, [1], "sent")
    fresh = make_send(ledger, status=SENDING, age="71 hours")
    scheduled = make_send(ledger, status=SENDING, age="100 hours", send_at="-10 hours")
    paused = make_send(ledger, age="100 hours", status=SENDING)
    put_send(ledger, paused.id, SendStatus.PAUSED)
    ches.reconcile()
    assert counts(ledger, old.id) == {"sent": 1, "owed": 2}  # the provider may take messages: nobody asked
    hold_back(ches, "circuit")
    ches.reconcile()
    assert counts(ledger, old.id) == {"sent": 1, "owed": 2}  # it has refused nothing for that long yet
    put_outage(ledger, ches.credential(), since="73 hours")
    ches.reconcile()
    assert counts(ledger, old.id) == {"sent": 1, "dead_lettered": 2}
    assert send_status(ledger, old.id) == "completed"
    assert "took nothing for 72 h" in delivery(ledger, old.id, 2)["last_error"]
    assert found(ledger) == {"batch": {"found": 1, "given_up": 1}}
    assert events(ledger, old)[-1] == ("outage_waited_out", 0, 2)
    for send in (fresh, scheduled, paused):
        assert counts(ledger, send.id) == {"owed": 1}


@pytest.mark.parametrize(
    "seen",
    [
        {"since": "71 hours"},
        {"since": "80 hours", "took": "71 hours"},
        {"since": "80 hours", "until": "3 hours"},
        {"took": "80 hours"},
    ],
    ids=["younger", "took something", "nobody asked for hours", "never refused"],
)
def test_what_has_waited_for_days_is_not_given_up_for_less_than_an_outage_of_three_days(
    ledger: Ledger, ches: InProcess, seen: dict[str, str]
) -> None:
    send = make_send(ledger, status=SENDING, age="80 hours")
    put_outage(ledger, ches.credential(), **seen)
    hold_back(ches, "circuit")
    ches.reconcile()
    assert counts(ledger, send.id) == {"owed": 1}


def test_a_batch_is_not_given_up_once_its_provider_has_taken_something(ledger: Ledger, ches: InProcess) -> None:
    send = make_send(ledger, count=2, status=SENDING, age="80 hours")
    put_outage(ledger, ches.credential(), since="73 hours")
    account = {"provider": "ches", "credential": ches.credential()}
    with ledger.autocommit() as connection:
        since = providers.standing(connection, **account, unbroken_s=7_200).outage_since
        assert since is not None
        outage = recovery.Outage("ches", ches.credential(), since)
        way = {"channel": Channel.EMAIL, "mode": Mode.LIVE}
        (found,) = recovery.waited_out_batches(connection, outage, **way, wait_s=72 * 3600.0, page=10)
        providers.note_accepted(connection, **account)
        signature = failure_signature(channel="email", provider="x", outcome_class="x", code="x", detail="x")
        verdict = Verdict(DeliveryStatus.DEAD_LETTERED, "outage_waited_out", "x", "tidings", signature)
        assert recovery.settle_unsent(connection, found, verdict, outage=outage) == 0
    assert counts(ledger, send.id) == {"owed": 2}


# --- faults of our own ------------------------------------------------------------------------------------------------


def test_what_a_fault_of_ours_breaks_is_set_aside_until_the_reconciler_frees_it_and_the_rest_goes_on(
    ledger: Ledger, make_worker: MakeWorker
) -> None:
    worker = make_worker(window_max=10)
    send = make_send(ledger, count=50, status=SENDING)
    with ledger.autocommit() as connection:  # an outcome that the ledger refuses for no reason we foresee
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'"
        )
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON attempt FOR EACH ROW"
            " WHEN (NEW.row_no = 1) EXECUTE FUNCTION refuse()"
        )
    worker.start(send)
    with pytest.raises(psycopg.errors.RaiseException):
        worker.work_off()
    worker.tick()
    worker.work_off()
    broken, whole = batch(ledger, send.id, 0), batch(ledger, send.id, 1)
    assert (broken["owed"], broken["holder"], whole["sent"]) == (15, worker.runtime.lease.worker, 25)
    with ledger.autocommit() as connection:
        connection.execute("DROP TRIGGER refuse ON attempt")
        connection.execute(
            "UPDATE batch SET leased_at = now() - interval '11 minutes', progress_at = now() - interval '11 minutes'"
            " WHERE holder IS NOT NULL"
        )
    worker.reconcile()
    assert batch(ledger, send.id, 0)["recovery_count"] == 1
    worker.work_off()
    assert counts(ledger, send.id) == {"unsure": 10, "sent": 40}


def test_a_row_that_cannot_be_rendered_by_a_fault_of_ours_fails_alone(ledger: Ledger, make_worker: MakeWorker) -> None:
    worker = make_worker(window_max=10)
    send = make_send(ledger, count=50, status=SENDING)
    with ledger.autocommit() as connection:  # no code of ours stores such params: rendering them raises
        connection.execute("UPDATE delivery SET params = '[1]' WHERE send_id = %s AND row_no = 1", [send.id])
    worker.start(send)
    worker.work_off()
    assert counts(ledger, send.id) == {"failed": 1, "sent": 49}


def test_a_chain_that_was_taken_away_leases_nothing_and_gives_nothing_back_of_its_successor(
    ledger: Ledger, worker: InProcess
) -> None:
    """The successor works in the same process, under the same number: only the message's token tells them apart."""
    send = make_send(ledger, count=50, status=SENDING)
    key, identity = ChainKey(send.id, send.channel, 0), worker.runtime.lease.worker
    worker.start(send)
    old = scalar(ledger, "SELECT token FROM chain")
    with ledger.autocommit() as connection:
        assert chains.begin(connection, key, token=old, worker=identity)
        assert len(batches.lease(connection, key, worker=identity, limit=1, token=old)) == 1
        connection.execute(
            "UPDATE batch SET leased_at = now() - interval '11 minutes', progress_at = now() - interval '11 minutes'"
            " WHERE holder IS NOT NULL"
        )
    worker.reconcile()
    new = scalar(ledger, "SELECT token FROM chain")
    assert new != old
    with ledger.autocommit() as connection:
        assert chains.begin(connection, key, token=new, worker=identity)
        [leased] = batches.lease(connection, key, worker=identity, limit=1, token=new)
        assert batches.lease(connection, key, worker=identity, limit=9, token=old) == []
        batches.release(connection, key, worker=identity, token=old)
        assert batch(ledger, send.id, leased.batch_no)["holder"] == identity
        batches.release(connection, key, worker=identity, token=new)
    assert batch(ledger, send.id, leased.batch_no)["holder"] is None
