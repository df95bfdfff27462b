"""Calls whose outcome nobody knows, from the lost answer to the proof: nothing is sent twice, nothing is lost."""

import json
from datetime import UTC, datetime
from threading import Thread
from uuid import uuid4

import pytest

from shared.coordination.guard import Guards
from shared.domain.states import Channel, DeliveryStatus, Mode, SendStatus
from shared.ledger import proofs
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand, ended, proved
from tests.integration.workers.ches import calls, serve
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend, counts, make_send, send_status
from tests.support.ledger_rows import attempts, break_rows, delivery, one, put_rows, scalar
from tests.support.scripted_http import RESET, Pause, ScriptedHttp, Step, answer
from tests.support.waiting import wait_until
from workers.actors.senders import Senders

SENDING = SendStatus.SENDING
STATUS = "/api/v1/status"
GONE: Step = [RESET]


def age(ledger: Ledger, by: str) -> None:
    """Let time pass for what is being proved: its call was made, and its next look is due, so much earlier."""
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE delivery SET prove_at = prove_at - %(by)s::interval,"
            " last_attempt_at = last_attempt_at - %(by)s::interval"
            " WHERE prove_at IS NOT NULL",
            {"by": by},
        )
        connection.execute("UPDATE batch SET prove_at = prove_at - %s::interval WHERE prove_at IS NOT NULL", [by])


def message(status: str, *, ago_s: float = 0.0, msg_id: str = "msg-1", **more: object) -> dict[str, object]:
    now_ms = int((datetime.now(UTC).timestamp() - ago_s) * 1000)
    return {"msgId": msg_id, "txId": str(uuid4()), "status": status, "createdTS": now_ms, "updatedTS": now_ms, **more}


def found(provider: ScriptedHttp, *messages: dict[str, object]) -> None:
    provider.always(STATUS, answer(200, list(messages)))


@pytest.fixture
def unsure(ledger: Ledger, ches: InProcess, provider: ScriptedHttp) -> MadeSend:
    """A send of two whose first answer was lost on the way."""
    serve(provider, {"person0": GONE})
    send = make_send(ledger, count=2, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"unsure": 1, "sent": 1}
    assert send_status(ledger, send.id) == "sending"
    return send


def test_an_unsure_delivery_keeps_its_send_open_until_the_provider_is_found_to_have_it(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    ches.tick()
    assert send_status(ledger, unsure.id) == "sending"
    ches.prove()
    assert provider.posts(STATUS) == []  # 30 s have not passed
    with ledger.autocommit() as connection:
        connection.execute("UPDATE provider_state SET last_accepted_at = NULL")
    found(provider, message("completed"))
    age(ledger, "30 seconds")
    ches.prove()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["provider_ref"], row["attempt_count"], row["claim_id"]) == ("sent", "msg-1", 1, None)
    assert scalar(ledger, "SELECT last_accepted_at FROM provider_state") == row["last_attempt_at"]
    ches.tick()
    assert send_status(ledger, unsure.id) == "completed"
    assert [(a["outcome"], a["became"], a["code"]) for a in attempts(ledger, unsure.id)][1:] == [
        ("accepted", "sent", "proved_taken")
    ]
    bodies = [json.loads(request.body) for request in provider.posts("/api/v1/email")]  # in any order
    (tag,) = [body["tag"] for body in bodies if body["to"] == ["person0@example.com"]]
    assert {tag} <= {request.path.partition("tag=")[2] for request in provider.posts(STATUS)}
    assert max(calls(provider).values()) == 1


def test_a_message_that_is_nowhere_is_owed_again_after_two_looks_and_ten_minutes_and_sent_once(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider)
    for passed in ("30 seconds", "90 seconds"):
        age(ledger, passed)
        ches.prove()
        assert counts(ledger, unsure.id) == {"unsure": 1, "sent": 1}
    age(ledger, "480 seconds")
    ches.prove()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["attempt_count"], row["settled_at"]) == ("owed", 0, None)
    serve(provider)
    ches.tick()
    ches.work_off()
    assert counts(ledger, unsure.id) == {"sent": 2}
    assert delivery(ledger, unsure.id)["attempt_count"] == 1
    assert calls(provider)["person0@example.com"] == 2
    assert send_status(ledger, unsure.id) == "completed"


def test_a_message_lost_again_and_again_for_days_is_given_up_and_one_lost_once_after_days_is_not(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider)

    def lose() -> str:
        for passed in ("30 seconds", "90 seconds", "480 seconds"):
            age(ledger, passed)
            ches.prove()
        return str(delivery(ledger, unsure.id)["status"])

    with ledger.autocommit() as connection:  # it was held or retried for days before this call
        connection.execute("UPDATE send SET created_at = now() - interval '9 days'")
        connection.execute(
            "UPDATE delivery SET first_attempt_at = now() - interval '8 days' WHERE prove_at IS NOT NULL"
        )
    assert lose() == "owed"
    with ledger.autocommit() as connection:
        connection.execute("UPDATE attempt SET started_at = now() - interval '73 hours' WHERE code = 'proved_absent'")
    ches.tick()
    ches.work_off()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    assert lose() == "dead_lettered"
    assert "again and again" in delivery(ledger, unsure.id)["last_error"]


def test_a_first_look_long_after_the_call_proves_no_absence(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider)
    age(ledger, "1 hour")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    age(ledger, "90 seconds")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "owed"


@pytest.mark.parametrize(
    "down",
    [answer(500, {"detail": "no"}), answer(503), answer(502, b"<html>"), GONE, answer(200, b"not json"), answer(403)],
    ids=["500", "503", "gateway", "reset", "not-json", "403"],
)
def test_a_look_that_fails_proves_nothing_however_often_and_goes_on(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend, down: Step
) -> None:
    provider.always(STATUS, down)
    for _ in range(3):
        age(ledger, "20 minutes")
        ches.prove()
        row = delivery(ledger, unsure.id)
        assert (row["status"], row["prove_count"]) == ("unsure", 0)
    assert (
        3 <= len(provider.posts(STATUS)) <= 6
    )  # libcurl repeats a GET when its kept connection dies: a look, no message
    found(provider, message("completed"))
    age(ledger, "1 minute")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "sent"


def test_after_the_longest_outage_that_is_waited_out_a_person_is_asked_and_late_proof_still_wins(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    provider.always(STATUS, answer(500, {"detail": "no"}))
    age(ledger, "73 hours")
    ches.prove()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["prove_at"]) == ("unsure", None)
    assert row["settled_at"] is not None
    assert row["claim_id"] is not None
    ches.tick()
    assert send_status(ledger, unsure.id) == "completed"
    assert one(ledger, "SELECT settled_counts FROM send")["settled_counts"]["email"]["unsure"] == 1
    assert attempts(ledger, unsure.id)[-1]["code"] == "unprovable"


def test_a_message_in_ches_own_queue_is_waited_for_and_counts_as_taken_after_ten_minutes(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider, message("pending"))
    age(ledger, "9 minutes")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    age(ledger, "2 minutes")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "sent"


def test_a_message_that_ches_stored_and_never_queued_is_promoted_and_not_sent_again(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    promote = "/api/v1/promote/msg-1"
    provider.always(promote, answer(202))
    age(ledger, "30 seconds")
    found(provider, message("accepted", ago_s=30))
    ches.prove()
    assert provider.posts(promote) == []
    age(ledger, "280 seconds")
    found(provider, message("accepted", ago_s=310))
    ches.prove()
    [asked] = provider.posts(promote)
    assert asked.method == "POST"
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    age(ledger, "30 seconds")
    found(provider, message("completed", ago_s=340))
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "sent"
    assert calls(provider)["person0@example.com"] == 1


@pytest.mark.parametrize(
    ("description", "became"),
    [
        ("Can't send mail - all recipients were rejected: 550 5.1.1 <person0@example.com>: no such user", "failed"),
        ("Can't send mail - all recipients were rejected: 450 4.2.0 greylisted", "retrying"),
        ("Message failed: 552 5.3.4 too big", "failed"),
        ("Connection timeout", "retrying"),
    ],
)
def test_a_failure_at_ches_is_final_after_three_tries_and_means_what_the_relay_said(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend, description: str, became: str
) -> None:
    failed = {"status": "failed", "description": description, "timestamp": 1}
    found(provider, message("failed"))
    provider.always(f"{STATUS}/msg-1", answer(200, message("failed", statusHistory=[failed, failed])))
    age(ledger, "30 seconds")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    provider.always(f"{STATUS}/msg-1", answer(200, message("failed", statusHistory=[failed] * 3)))
    age(ledger, "30 seconds")
    ches.prove()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["attempt_count"]) == (became, 1)
    assert "person0@example.com" not in row["last_error"]
    assert attempts(ledger, unsure.id)[-1]["signature"] is not None


def test_a_failure_at_ches_without_news_for_two_minutes_is_final(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider, message("failed", ago_s=130))
    provider.always(f"{STATUS}/msg-1", answer(200, message("failed", ago_s=130, statusHistory=[])))
    age(ledger, "200 seconds")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "retrying"


def test_what_an_earlier_try_left_at_ches_is_no_proof_against_this_one(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider, message("failed", ago_s=4_000), message("accepted", ago_s=4_000, msg_id="msg-2"))
    age(ledger, "30 seconds")
    ches.prove()
    assert (delivery(ledger, unsure.id)["status"], delivery(ledger, unsure.id)["prove_count"]) == ("unsure", 1)
    assert not [request for request in provider.received if "promote" in request.path]


def test_a_token_that_ran_out_is_renewed_for_the_look(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider, message("completed"))
    provider.once(STATUS, answer(401))
    age(ledger, "30 seconds")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "sent"


def test_only_the_account_that_was_called_is_asked(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider)
    other = make_worker(**{**ches_settings(provider), "ches_client_id": "another"})
    age(ledger, "50 minutes")
    other.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    age(ledger, "20 minutes")
    other.prove()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["prove_at"]) == ("unsure", None)
    assert "another account" in row["last_error"]
    assert provider.posts(STATUS) == []


def test_a_worker_that_died_in_mid_call_leaves_calls_that_are_proved(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    send = claimed_by_the_dead(ledger, ches, provider, 3)
    ches.tick()
    assert counts(ledger, send.id) == {"unsure": 3}
    found(provider, message("completed"))
    age(ledger, "30 seconds")
    ches.prove()
    assert counts(ledger, send.id) == {"sent": 3}
    assert calls(provider) == {}
    row = delivery(ledger, send.id)
    assert (row["provider"], row["attempt_count"]) == ("ches", 1)


def claimed_by_the_dead(ledger: Ledger, ches: InProcess, provider: ScriptedHttp, count: int) -> MadeSend:
    """A send whose rows a process claimed for CHES, and died."""
    send = make_send(ledger, count=count, status=SENDING)
    hand = Hand(ledger)
    hand.take(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET credential = %s WHERE credential = 'account'", [ches.credential()])
    hand.die()
    return send


def test_two_provers_at_once_ask_once_about_each(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    send = claimed_by_the_dead(ledger, ches, provider, 45)
    ches.tick()
    age(ledger, "30 seconds")
    provider.always(STATUS, [Pause(0.05), *answer(200, [message("completed")])])
    provers = [ches, make_worker(**ches_settings(provider)), make_worker(**ches_settings(provider))]
    threads = [Thread(target=prover.prove) for prover in provers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts(ledger, send.id) == {"sent": 45}
    assert set(provider.count_by(lambda request: request.path, STATUS).values()) == {1}


def test_a_prover_that_dies_leaves_its_rows_to_the_next(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    age(ledger, "30 seconds")
    [row] = Hand(ledger).look(unsure)
    found(provider, message("completed"))
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"
    assert row.held_until > datetime.now(UTC)
    age(ledger, "2 minutes")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "sent"


def test_a_row_that_cannot_be_settled_keeps_no_other_from_its_proof(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    serve(provider, otherwise=GONE)
    whole = make_send(ledger, status=SENDING)
    ches.run(whole)
    break_rows(ledger, unsure.id)
    found(provider, message("completed"))
    age(ledger, "30 seconds")
    ches.prove()
    assert [delivery(ledger, send.id)["status"] for send in (unsure, whole)] == ["unsure", "sent"]


def test_while_the_circuit_is_open_one_look_is_the_probe_and_lets_the_others_through(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), circuit_reset_ms=1_000)
    serve(provider, otherwise=GONE)
    send = make_send(ledger, count=10, status=SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"unsure": 10}
    guards = _guards(worker)
    assert guards.circuit.snapshot().state == "open"
    found(provider, message("completed"))
    age(ledger, "30 seconds")
    worker.prove()
    held = counts(ledger, send.id)

    def all_proved() -> bool:
        age(ledger, "2 minutes")
        worker.prove()
        return counts(ledger, send.id) == {"sent": 10}

    assert held == {"unsure": 10}
    wait_until(all_proved, timeout=15)
    assert guards.circuit.snapshot().state == "closed"


def _guards(worker: InProcess) -> Guards:
    return Senders(worker.runtime).sender(Channel.EMAIL, Mode.LIVE).guards


def test_the_late_result_of_the_original_worker_and_the_proof_settle_the_row_once(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=2, status=SENDING)
    hand = Hand(ledger)
    claim, rows = hand.take(send)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET credential = %s", [ches.credential()])
    hand.die()
    ches.tick()
    age(ledger, "30 seconds")
    looked = hand.look(send)
    assert hand.record_late(claim, ended(rows[0], DeliveryStatus.SENT, ref="late"))
    assert hand.prove(send, *[proved(row, DeliveryStatus.OWED) for row in looked]) == [1]
    assert counts(ledger, send.id) == {"sent": 1, "owed": 1}
    assert not hand.record_late(claim, ended(rows[1], DeliveryStatus.SENT))
    assert delivery(ledger, send.id)["provider_ref"] == "late"
    found(provider)
    ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 2}


def test_a_retry_that_is_unsure_again_starts_its_looks_anew(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    found(provider)
    age(ledger, "1 hour")
    ches.prove()
    age(ledger, "90 seconds")
    ches.prove()
    ches.tick()
    ches.work_off()
    row = delivery(ledger, unsure.id)
    assert (row["status"], row["prove_count"], row["attempt_count"]) == ("unsure", 0, 1)
    age(ledger, "1 hour")
    ches.prove()
    assert delivery(ledger, unsure.id)["status"] == "unsure"


def test_a_cancelled_send_is_closed_once_its_last_call_is_proved(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unsure: MadeSend
) -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET status = 'cancelled', cancelled_at = now()")
    ches.tick()
    assert scalar(ledger, "SELECT settled_counts FROM send") is None
    found(provider)
    age(ledger, "1 hour")
    ches.prove()
    age(ledger, "2 minutes")
    ches.prove()
    ches.tick()
    assert counts(ledger, unsure.id) == {"cancelled": 1, "sent": 1}
    ches.tick()
    assert scalar(ledger, "SELECT settled_counts FROM send") is not None
    assert calls(provider)["person0@example.com"] == 1


def test_the_sandbox_proves_what_it_kept_and_gives_back_what_it_lost(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, addresses=["ambiguous@example.com", "lost@example.com"], status=SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"unsure": 2}
    for passed in ("5 seconds", "10 seconds"):
        age(ledger, passed)
        worker.prove()
    assert counts(ledger, send.id) == {"sent": 1, "owed": 1}
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 2}
    assert send_status(ledger, send.id) == "completed"
    assert scalar(ledger, "SELECT count(*) FROM sandbox_message") == 2


def test_a_sandbox_that_has_forgotten_proves_no_absence(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, addresses=["ambiguous@example.com"], status=SENDING)
    worker.run(send)
    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM sandbox_message")
    age(ledger, "20 seconds")
    worker.prove()
    row = delivery(ledger, send.id)
    assert (row["status"], row["prove_at"]) == ("unsure", None)


def test_looks_at_one_tenants_many_do_not_hold_up_anothers_one(ledger: Ledger) -> None:
    big = make_send(ledger, count=200, batch_size=5, status=SENDING, tenant="big")
    put_rows(ledger, big.id, range(1, 201), "unsure", prove_in="-1 hour", attempts=1)
    small = make_send(ledger, status=SENDING, tenant="small")
    put_rows(ledger, small.id, [1], "unsure", prove_in="-1 second", attempts=1)
    with ledger.autocommit() as connection:
        first = proofs.find_due(connection, limit=4)
    assert small.id in {each.send_id for each in first}
