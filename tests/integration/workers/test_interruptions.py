"""What happens in the middle: cancel, pause, drain, a lost lease, a store that goes away. Nobody is sent to twice."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import psycopg
import pytest

from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from shared.domain.outcome import Outcome, Permanent, Scope
from shared.domain.states import SendStatus
from shared.jobs import QueueName
from shared.ledger import sends
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from tests.integration.coordination.conftest import LonelyRedis, lonely_redis
from tests.integration.workers.broken import Broken, make_window, run_through
from tests.integration.workers.ches import calls, refused, serve, taken
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.books import assert_books_balance
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import attempts, delivery, one, scalar
from tests.support.scripted_http import HANG, Pause, Received, ScriptedHttp, Step
from tests.support.scripted_smtp import scripted_smtp
from tests.support.servers import server_folder
from tests.support.waiting import wait_until
from workers.providers.protocol import Message

SENDING = SendStatus.SENDING
__all__ = ["lonely_redis"]  # a fixture of another folder


def at_the_nth_call(number: int, act: Callable[[], object]) -> Callable[[Received], Step]:
    """Take every message; while the nth is being answered, do something."""
    lock = threading.Lock()
    seen = [0]

    def step(request: Received) -> Step:
        with lock:
            seen[0] += 1
            mine = seen[0]
        if mine == number:
            act()
        return taken(request)

    return step


@pytest.fixture
def narrow(make_worker: MakeWorker, provider: ScriptedHttp) -> InProcess:
    """Windows of five calls."""
    return make_worker(**ches_settings(provider), window_max=5, batch_size=5)


def tenant_of(ledger: Ledger) -> int:
    return int(scalar(ledger, "SELECT id FROM tenant"))


def test_a_cancel_in_mid_send_stops_it_within_the_window_under_way(
    ledger: Ledger, narrow: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=50, batch_size=5, status=SENDING)

    def cancel() -> None:
        with ledger.autocommit() as connection:
            assert sends.cancel(connection, tenant_id=tenant_of(ledger), send_id=send.id)

    serve(provider, otherwise=at_the_nth_call(12, cancel))
    narrow.run(send)
    assert sum(calls(provider).values()) == 15
    narrow.tick()
    assert counts(ledger, send.id) == {"sent": 15, "cancelled": 35}
    assert one(ledger, "SELECT settled_counts FROM send")["settled_counts"]["email"]["cancelled"] == 35
    narrow.tick()
    narrow.work_off()
    assert sum(calls(provider).values()) == 15


def test_a_pause_in_mid_send_stops_it_within_the_window_and_resuming_sends_the_rest_once(
    ledger: Ledger, narrow: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=20, batch_size=5, status=SENDING)

    def pause() -> None:
        with ledger.autocommit() as connection:
            assert sends.pause(connection, tenant_id=tenant_of(ledger), send_id=send.id, reason="wait")

    serve(provider, otherwise=at_the_nth_call(3, pause))
    narrow.run(send)
    assert counts(ledger, send.id) == {"sent": 5, "owed": 15}
    narrow.tick()
    assert narrow.work_off() == 0
    with ledger.autocommit() as connection:
        assert sends.resume(connection, tenant_id=tenant_of(ledger), send_id=send.id)
    narrow.tick()
    narrow.work_off()
    assert counts(ledger, send.id) == {"sent": 20}
    assert set(calls(provider).values()) == {1}


def test_a_send_that_expires_in_mid_send_calls_nobody_more_and_settles_the_rest(
    ledger: Ledger, narrow: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=20, batch_size=5, status=SENDING, valid_until="1 hour")

    def expire() -> None:
        with ledger.autocommit() as connection:
            connection.execute("UPDATE send SET valid_until = now() - interval '1 second'")

    serve(provider, otherwise=at_the_nth_call(3, expire))
    narrow.run(send)
    narrow.tick()
    assert counts(ledger, send.id) == {"sent": 5, "expired": 15}
    assert send_status(ledger, send.id) == "completed"


def test_a_chain_whose_time_is_up_hands_over_to_a_successor_behind_the_others(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), window_max=5, batch_size=5, chain_budget_ms=100)
    serve(provider, otherwise=lambda request: [Pause(0.06), *taken(request)])
    send = make_send(ledger, count=40, batch_size=5, status=SENDING)
    worker.start(send)
    assert worker.work_off(most=1) == 1
    assert 0 < counts(ledger, send.id)["sent"] < 40
    assert len(worker.messages(QueueName.EMAIL_BULK)) == 1
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NOT NULL") == 0
    worker.work_off()
    assert counts(ledger, send.id) == {"sent": 40}


def test_a_draining_process_finishes_its_window_gives_the_rest_back_and_leaves_a_successor(
    ledger: Ledger, narrow: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=30, batch_size=5, status=SENDING)
    serve(provider, otherwise=at_the_nth_call(8, narrow.runtime.begin_drain))
    narrow.run(send)
    assert counts(ledger, send.id) == {"sent": 10, "owed": 20}
    assert scalar(ledger, "SELECT count(*) FROM batch WHERE holder IS NOT NULL") == 0
    assert scalar(ledger, "SELECT kind || ' ' || worker FROM send_event") == f"drained {narrow.runtime.lease.name}"
    second = make_worker(**ches_settings(provider))
    second.tick()
    second.work_off()
    assert counts(ledger, send.id) == {"sent": 30}
    assert set(calls(provider).values()) == {1}


def test_calls_that_outlast_the_drain_are_cut_and_unsure(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    worker = make_worker(**ches_settings(provider), queue_shutdown_drain_ms=2_100)
    send = make_send(ledger, count=3, status=SENDING)

    def hang(_: Received) -> Step:
        worker.runtime.begin_drain()
        return [HANG]

    serve(provider, {"person1": hang})
    worker.run(send)
    assert counts(ledger, send.id) == {"sent": 2, "unsure": 1}
    [attempt] = attempts(ledger, send.id, 2)
    assert attempt["code"] == "call_cut"


def test_a_lease_lost_before_the_calls_sends_nothing_and_the_rows_are_there_for_another(
    ledger: Ledger, ches: InProcess, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    make_window(ches, send, before_the_calls=ches.runtime.lease.close)
    assert calls(provider) == {}
    assert counts(ledger, send.id) == {"owed": 3}
    second = make_worker(**ches_settings(provider))
    second.tick()
    second.work_off()
    assert counts(ledger, send.id) == {"sent": 3}
    assert set(calls(provider).values()) == {1}


def test_a_process_that_woke_up_under_a_new_lease_does_not_call_for_the_old_one(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    # Frozen after its claim for longer than the lease: the renewing thread has a new identity before the
    # sending thread looks.
    send = make_send(ledger, count=3, status=SENDING)
    lease = ches.runtime.lease
    old = lease.worker

    def freeze() -> None:
        with ledger.autocommit() as connection:
            connection.execute("UPDATE worker SET lease_until = now() - interval '1 second'")
        ches.tick()  # as a living process does
        assert counts(ledger, send.id) == {"unsure": 3}
        wait_until(lambda: lease.worker != old and lease.holds(lease.worker), what="the new lease")

    make_window(ches, send, before_the_calls=freeze)
    assert calls(provider) == {}
    assert counts(ledger, send.id) == {"owed": 3}


class Unstorable(Broken):
    """An adapter that names failures in a way no database can keep."""

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        for index in range(len(messages)):
            yield index, Permanent(Scope.RECIPIENT, "with a \0 in it")


def test_an_adapter_that_raises_leaves_its_unanswered_calls_unsure_and_gives_the_batch_back(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    run_through(worker, send, Broken())
    assert counts(ledger, send.id) == {"sent": 1, "unsure": 2}
    assert delivery(ledger, send.id, 3)["last_error"].startswith("call_cut")
    assert scalar(ledger, "SELECT holder FROM batch") is None


def test_outcomes_that_cannot_be_stored_leave_no_row_in_a_call_that_nobody_makes(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    with pytest.raises(psycopg.DataError):
        run_through(worker, send, Unstorable())
    assert counts(ledger, send.id) == {"unsure": 3}
    assert attempts(ledger, send.id)[0]["code"] == "not_recorded"
    assert scalar(ledger, "SELECT holder FROM batch") is None


def test_no_connection_to_postgres_is_held_across_a_call(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    seen: list[bool] = []

    def none_is_in_use() -> bool:
        # The lease's thread and the look at paused queues have one for a moment, now and then.
        with ledger.autocommit() as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'tidings%' AND state <> 'idle'"
            ).fetchone()
        return row == (0,)

    serve(provider, otherwise=at_the_nth_call(25, lambda: seen.append(wait_until(none_is_in_use))))
    send = make_send(ledger, count=25, status=SENDING)
    ches.run(send)
    assert seen == [True]


def test_a_call_that_outlived_its_lease_wins_over_the_parking(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    send = make_send(ledger, count=2, status=SENDING)

    def park() -> None:
        with ledger.autocommit() as connection:
            connection.execute("UPDATE worker SET lease_until = now() - interval '1 second'")
            connection.execute("UPDATE worker SET id = gen_random_uuid()")
        ches.tick()
        assert counts(ledger, send.id)["unsure"] >= 1

    serve(provider, otherwise=at_the_nth_call(2, park))
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 2}
    assert delivery(ledger, send.id)["attempt_count"] == 1
    assert set(calls(provider).values()) == {1}


def test_postgres_sessions_cut_in_mid_window_cost_no_outcome_and_no_second_call(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, postgres_url: str
) -> None:
    send = make_send(ledger, count=60, status=SENDING)

    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tidings%'"
            )

    serve(provider, otherwise=at_the_nth_call(30, cut))
    ches.run(send)
    ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 60}
    assert set(calls(provider).values()) == {1}
    assert send_status(ledger, send.id) == "completed"


def test_a_postgres_that_is_restarted_in_mid_window_costs_no_outcome_and_no_second_call(
    tether: Tether, redis_url: str, provider: ScriptedHttp
) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(server_folder())
        server = Postgres(folder, tether=tether, account=server_account(), options={"fsync": "off"})
        stack.callback(server.stop)
        url = server.start()
        upgrade(url)

        def restart() -> None:
            server.stop()
            server.start()

        own = Ledger(url, size=4, name="tests")
        own.open()
        stack.callback(own.close)
        with InProcess(make_settings(url, redis_url, **ches_settings(provider))) as worker:
            send = make_send(own, count=40, status=SENDING)
            serve(provider, otherwise=at_the_nth_call(12, restart))
            worker.run(send)
            assert counts(own, send.id) == {"sent": 40}
            assert set(calls(provider).values()) == {1}
            assert_books_balance(own)


def test_a_chain_whose_redis_goes_away_goes_on_from_the_ledger_past_its_time(
    ledger: Ledger, database_url: str, provider: ScriptedHttp, lonely_redis: LonelyRedis
) -> None:
    settings = make_settings(
        database_url, lonely_redis.url, **{**ches_settings(provider), "window_max": 5, "chain_budget_ms": 100}
    )
    send = make_send(ledger, count=60, status=SENDING)
    with InProcess(settings) as worker:
        worker.start(send)
        serve(provider, otherwise=at_the_nth_call(3, lonely_redis.kill))
        [message] = worker.messages(QueueName.EMAIL_BULK)
        worker.broker.get_actor(message.actor_name).fn(**message.kwargs)
    assert counts(ledger, send.id) == {"sent": 60}
    assert set(calls(provider).values()) == {1}
    assert scalar(ledger, "SELECT count(*) FROM chain") == 0


def test_a_chain_that_is_held_while_redis_is_away_waits_instead_of_ending(
    ledger: Ledger, database_url: str, provider: ScriptedHttp, lonely_redis: LonelyRedis
) -> None:
    """Five refusals open the circuit of this process; nobody could bring a chain back that ended for it."""
    settings = make_settings(
        database_url, lonely_redis.url, **{**ches_settings(provider), "window_max": 5, "circuit_reset_ms": 1_000}
    )
    send = make_send(ledger, count=60, status=SENDING)
    refusals = iter([False] * 5 + [True] * 5)
    step = at_the_nth_call(3, lonely_redis.kill)
    with InProcess(settings) as worker:
        worker.start(send)
        serve(provider, otherwise=lambda request: refused(503) if next(refusals, False) else step(request))
        [message] = worker.messages(QueueName.EMAIL_BULK)
        worker.broker.get_actor(message.actor_name).fn(**message.kwargs)
    assert counts(ledger, send.id) == {"sent": 55, "retrying": 5}


def test_a_drain_that_cuts_a_window_over_smtp_leaves_unsure_only_the_message_under_way(
    ledger: Ledger, make_worker: MakeWorker
) -> None:
    with scripted_smtp() as relay:
        worker = make_worker(
            email_provider="smtp",
            smtp_host="127.0.0.1",
            smtp_port=relay.port,
            smtp_security="none",
            smtp_connections_per_process=1,
            queue_shutdown_drain_ms=2_100,
        )
        send = make_send(ledger, count=5, status=SENDING)

        def hang() -> Step:
            worker.runtime.begin_drain()
            return [HANG]

        relay.always("dot", hang)
        worker.run(send)
        assert counts(ledger, send.id) == {"owed": 4, "unsure": 1}
        assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 1
