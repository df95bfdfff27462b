"""A send from ingest to its end, and what each kind of answer makes of it."""

import pytest

from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.jobs import JobName, QueueName
from shared.ledger.db import Ledger
from tests.integration.workers.ches import calls, refused, refused_field, serve, tags
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import attempts, delivery, make_due, one, scalar
from tests.support.scripted_http import RESET, ScriptedHttp, answer

SENDING = SendStatus.SENDING


def test_an_accepted_send_is_ingested_sent_and_completed(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=120)
    worker.jobs.ingest(send.id)
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 120}
    assert send_status(ledger, send.id) == "completed"
    assert scalar(ledger, "SELECT count(*) FROM chain") == 0
    kept = one(ledger, "SELECT * FROM sandbox_message WHERE address = 'person6@example.com'")
    assert (kept["send_id"], kept["row_no"]) == (send.id, 7)
    assert (kept["subject"], kept["text"]) == ("Hello you", "Dear you, number 7.")
    assert one(ledger, "SELECT settled_counts FROM send")["settled_counts"]["email"]["sent"] == 120


def test_a_send_by_sms_is_sent(ledger: Ledger, worker: InProcess) -> None:
    numbers = [f"+160455501{n}" for n in (10, 11, 12)]
    send = make_send(ledger, addresses=numbers, channel=Channel.SMS, lane=Lane.SINGLE)
    worker.jobs.ingest(send.id)
    worker.work_off(QueueName.INGEST)
    assert [message.queue_name for message in worker.messages(QueueName.SMS)] == ["sms"]
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 3}


def test_what_a_test_key_sends_goes_to_the_sandbox_whatever_is_configured(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=2, mode=Mode.TEST, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 2}
    assert provider.received == []
    assert scalar(ledger, "SELECT count(*) FROM sandbox_message") == 2


def test_a_send_through_ches_reaches_each_recipient_once_under_a_tag_of_its_own(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=60, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 60}
    assert set(calls(provider).values()) == set(tags(provider).values()) == {1}
    assert len(tags(provider)) == 60
    row = delivery(ledger, send.id)
    assert row["provider"] == "ches"
    assert row["provider_ref"].startswith("msg-")


def test_a_bulk_send_starts_as_many_chains_as_can_be_busy_and_a_single_one_starts_one(
    ledger: Ledger, worker: InProcess
) -> None:
    bulk = make_send(ledger, count=60)
    single = make_send(ledger, count=60, lane=Lane.SINGLE)
    worker.jobs.ingest(bulk.id)
    worker.jobs.ingest(single.id)
    worker.work_off(QueueName.INGEST)
    assert (len(worker.messages(QueueName.EMAIL_BULK)), len(worker.messages(QueueName.EMAIL))) == (3, 1)
    worker.work_off()
    assert counts(ledger, bulk.id) == counts(ledger, single.id) == {"sent": 60}


def test_ingesting_again_changes_nothing(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=2)
    for _ in range(3):
        worker.jobs.ingest(send.id)
    worker.work_off(QueueName.INGEST)
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 1
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 2}


def test_a_failure_that_passes_is_retried_after_its_backoff_and_then_sent_under_the_same_tag(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, {"person0": refused(503)})
    send = make_send(ledger, count=2, status=SENDING)
    ches.run(send)
    waiting = delivery(ledger, send.id, 1)
    assert waiting["status"] == "retrying"
    wait = scalar(ledger, "SELECT extract(epoch FROM next_attempt_at - now())::float8 FROM delivery WHERE row_no = 1")
    assert 290 < wait <= 330
    assert send_status(ledger, send.id) == "sending"
    ches.tick()
    assert ches.work_off() == 0

    serve(provider)
    make_due(ledger)
    ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 2}
    assert send_status(ledger, send.id) == "completed"
    assert sorted(tags(provider).values()) == [1, 2]
    assert [attempt["outcome"] for attempt in attempts(ledger, send.id, 1)] == ["transient", "accepted"]


def test_a_recipient_refused_for_good_fails_alone_and_is_named_with_its_error(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, {"person1": refused_field("to")})
    send = make_send(ledger, count=3, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 2, "failed": 1}
    assert send_status(ledger, send.id) == "completed"
    row = delivery(ledger, send.id, 2)
    assert row["last_error"].startswith("ches_422_to")
    [attempt] = attempts(ledger, send.id, 2)
    group = one(ledger, "SELECT * FROM failure_group")
    assert (group["signature"], group["provider"], group["outcome"]) == (attempt["signature"], "ches", "permanent")
    assert group["title"].count("ches_422_to") == 1


def test_a_recipient_who_opted_out_joins_the_suppression_list_and_is_not_called_next_time(
    ledger: Ledger, worker: InProcess
) -> None:
    addresses = ["suppressed@example.com", "here@example.com"]
    first = make_send(ledger, addresses=addresses, status=SENDING)
    worker.run(first)
    assert counts(ledger, first.id) == {"suppressed": 1, "sent": 1}
    assert scalar(ledger, "SELECT address FROM suppression") == "suppressed@example.com"
    assert len(attempts(ledger, first.id, 1)) == 1

    second = make_send(ledger, addresses=["Suppressed@Example.com", "here@example.com"], status=SENDING)
    worker.run(second)
    row = delivery(ledger, second.id, 1)
    assert (row["status"], row["attempt_count"]) == ("suppressed", 0)
    assert attempts(ledger, second.id, 1) == []
    assert send_status(ledger, second.id) == "completed"


def test_a_throttled_provider_closes_the_gate_burns_nothing_and_is_left_alone_until_it_opens(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    slow_down = answer(429, {"detail": "slow down"}, {"Retry-After": "120"})
    serve(provider, otherwise=slow_down)
    send = make_send(ledger, count=50, status=SENDING)
    ches.run(send)
    made = len(provider.posts("/api/v1/email"))
    assert made == 25  # one window
    assert counts(ledger, send.id) == {"owed": 50}
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 0
    make_due(ledger)
    ches.tick()
    assert ches.work_off() == 0
    assert len(provider.posts("/api/v1/email")) == made


def test_our_own_wrong_account_isolates_the_provider_is_shown_and_fails_nobody(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, otherwise=refused(403, "azp is not allowed"))
    send = make_send(ledger, count=30, status=SENDING)
    ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"owed": 30}
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 0
    state = one(ledger, "SELECT * FROM provider_state")
    assert (state["provider"], state["configuration_error"]) == ("ches", "ches_403: azp is not allowed")
    made = len(provider.posts("/api/v1/email"))
    make_due(ledger)
    ches.tick()
    ches.work_off()
    assert len(provider.posts("/api/v1/email")) == made


def test_a_provider_without_settings_is_a_configuration_error_and_no_failure(
    ledger: Ledger, make_worker: MakeWorker
) -> None:
    worker = make_worker(email_provider="ches")
    send = make_send(ledger, count=3, status=SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"owed": 3}
    error = one(ledger, "SELECT configuration_error FROM provider_state")["configuration_error"]
    assert "CHES_BASE_URL" in error
    assert "CHES_CLIENT_SECRET" in error


def test_a_lost_answer_makes_a_delivery_unsure_and_it_is_never_sent_again(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, {"person0": [RESET]})
    send = make_send(ledger, count=2, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 1, "unsure": 1}
    assert attempts(ledger, send.id, 1)[0]["evidence"]["status"] == "0"
    assert send_status(ledger, send.id) == "sending"  # until it is proved or parked
    make_due(ledger)
    ches.tick()
    ches.work_off()
    assert calls(provider)["person0@example.com"] == 1


def test_an_outage_burns_no_attempt_however_long_it_lasts(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), circuit_failures=1_000)
    serve(provider, otherwise=refused(503))
    send = make_send(ledger, count=3, status=SENDING)
    worker.start(send)
    for _ in range(8):
        worker.work_off()
        make_due(ledger)
        worker.tick()
    assert counts(ledger, send.id) == {"retrying": 3}
    assert scalar(ledger, "SELECT max(attempt_count) FROM delivery") == 0
    assert scalar(ledger, "SELECT count(*) FROM provider_state WHERE last_accepted_at IS NOT NULL") == 0


def test_an_outage_burns_no_attempt_although_the_provider_took_something_yesterday(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), circuit_failures=1_000)
    note_accepted(ledger, worker.credential(), "-1 day")
    serve(provider, otherwise=refused(503))
    send = make_send(ledger, count=3, status=SENDING, age="1 hour")
    worker.start(send)
    for _ in range(8):
        worker.work_off()
        make_due(ledger)
        worker.tick()
    assert counts(ledger, send.id) == {"retrying": 3}
    assert scalar(ledger, "SELECT max(attempt_count) FROM delivery") == 0
    assert scalar(ledger, "SELECT last_accepted_at < now() - interval '23 hours' FROM provider_state")


def note_accepted(ledger: Ledger, credential: str, when: str) -> None:
    """Somebody else's message was taken at an interval from now."""
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO provider_state (provider, credential, last_accepted_at)"
            " VALUES ('ches', %s, now() + %s::interval) ON CONFLICT (provider, credential)"
            " DO UPDATE SET last_accepted_at = excluded.last_accepted_at",
            [credential, when],
        )


def test_a_delivery_that_fails_while_others_are_taken_is_dead_lettered_at_the_fifth_failure(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), circuit_failures=1_000)
    credential = worker.credential()
    serve(provider, otherwise=refused(503))
    note_accepted(ledger, credential, "1 second")
    send = make_send(ledger, status=SENDING)
    worker.start(send)
    for _ in range(8):
        worker.work_off()
        note_accepted(ledger, credential, "1 second")
        make_due(ledger)
        worker.tick()
    row = delivery(ledger, send.id)
    assert (row["status"], row["attempt_count"], row["next_attempt_at"]) == ("dead_lettered", 5, None)
    assert calls(provider)["person0@example.com"] == 5
    assert send_status(ledger, send.id) == "completed"


def test_five_equal_faults_of_the_message_pause_the_send_and_resuming_lets_it_go_on(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), window_max=5, batch_size=5)
    serve(provider, otherwise=refused_field("body"))
    send = make_send(ledger, count=20, batch_size=5, status=SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"failed": 5, "owed": 15}
    row = one(ledger, "SELECT * FROM send")
    assert row["status"] == "paused"
    assert "5 recipients" in row["pause_reason"]
    assert "body" in row["pause_reason"]
    worker.tick()
    assert worker.work_off() == 0

    serve(provider)
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE send SET status = 'sending', paused_at = NULL, pause_reason = NULL, resumed_at = now()"
        )
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"failed": 5, "sent": 15}


def test_a_resumed_send_is_paused_again_only_by_five_new_faults(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), window_max=4, batch_size=4)
    serve(provider, otherwise=refused_field("body"))
    send = make_send(ledger, count=20, batch_size=4, status=SENDING)
    worker.run(send)
    assert counts(ledger, send.id) == {"failed": 8, "owed": 12}
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE send SET status = 'sending', paused_at = NULL, pause_reason = NULL, resumed_at = now()"
        )
    worker.tick()
    worker.work_off()
    assert counts(ledger, send.id) == {"failed": 16, "owed": 4}
    assert send_status(ledger, send.id) == "paused"


def test_a_refused_sender_pauses_the_send_with_the_reason_and_nothing_else(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    refused_tenant = make_send(ledger, count=3, status=SENDING)
    serve(provider, {f"person{n}": refused_field("from") for n in range(3)})
    ches.run(refused_tenant)
    assert counts(ledger, refused_tenant.id) == {"owed": 3}
    row = one(ledger, "SELECT * FROM send")
    assert row["status"] == "paused"
    assert "sender" in row["pause_reason"]
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 0
    another = make_send(ledger, addresses=["other@example.com"], status=SENDING)
    ches.run(another)
    assert counts(ledger, another.id) == {"sent": 1}


def test_a_row_that_cannot_be_rendered_fails_alone(ledger: Ledger, ches: InProcess, provider: ScriptedHttp) -> None:
    content = {"subject": "s", "text": "{{ only_some_have_it }}", "html": None}
    send = make_send(ledger, count=2, status=SENDING, content=content)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET params = '{\"only_some_have_it\": 0}' WHERE row_no = 2")
    ches.run(send)
    assert counts(ledger, send.id) == {"failed": 1, "sent": 1}
    assert "only_some_have_it" in delivery(ledger, send.id, 1)["last_error"]
    assert list(calls(provider)) == ["person1@example.com"]


def test_a_send_without_any_sender_is_paused_with_the_reason(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**{**ches_settings(provider), "email_from": None})
    send = make_send(ledger, status=SENDING)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE tenant SET email_from = NULL")
    worker.run(send)
    row = one(ledger, "SELECT * FROM send")
    assert row["status"] == "paused"
    assert "EMAIL_FROM" in row["pause_reason"]
    assert counts(ledger, send.id) == {"owed": 1}


def test_no_address_and_no_content_is_in_any_message_of_the_queues(ledger: Ledger, worker: InProcess) -> None:
    send = make_send(ledger, count=40)
    worker.jobs.ingest(send.id)
    worker.work_off(QueueName.INGEST)
    [first, *_] = worker.messages(QueueName.EMAIL_BULK)
    assert len(first.encode()) < 512
    assert b"example.com" not in first.encode()
    assert first.actor_name == JobName.WORK_CHAIN
    worker.work_off()


@pytest.mark.parametrize("status", [SendStatus.PAUSED, SendStatus.CANCELLED, SendStatus.COMPLETED])
def test_a_chain_of_a_send_that_is_not_being_sent_calls_nobody(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, status: SendStatus
) -> None:
    from tests.support.ledger_rows import put_rows, put_send

    send = make_send(ledger, count=2, status=SENDING)
    if status is SendStatus.COMPLETED:
        put_rows(ledger, send.id, [1, 2], "sent")
    put_send(ledger, send.id, status)
    ches.run(send)
    assert provider.received == []
