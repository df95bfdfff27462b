"""An account that is refused holds its sends back, costs a few calls, and lets them go once it is put right."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from shared.coordination.redis import RedisUnavailable
from shared.domain.states import Channel, Mode, SendStatus
from shared.jobs import JobName, QueueName
from shared.ledger.db import Ledger
from shared.recovery.waits import Waits
from tests.integration.coordination.conftest import LonelyRedis
from tests.integration.workers.ches import EMAIL, refused, serve
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.books import assert_books_balance
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import scalar
from tests.support.scripted_http import ScriptedHttp
from tests.support.waiting import wait_until

SENDING = SendStatus.SENDING
REFUSED = refused(403, "azp is not allowed")


def look(worker: InProcess, *, times: int = 1) -> None:
    """Ticks of the due work, each worked off; the grace of a message that may still be on its way is over."""
    for _ in range(times):
        with worker.runtime.ledger.autocommit() as connection:
            connection.execute("UPDATE chain SET queued_at = queued_at - interval '10 seconds'")
        worker.tick()
        worker.work_off()


def isolated(worker: InProcess) -> bool:
    return Waits(worker.runtime.link, worker.settings).reason(Channel.EMAIL, Mode.LIVE) == "isolated"


def reachable(worker: InProcess) -> bool:
    try:
        return bool(worker.runtime.link.pipeline([("PING",)]))
    except RedisUnavailable:
        return False


def test_a_restart_with_right_settings_sends_at_once_what_waited_for_them(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    before = make_worker(**ches_settings(provider))
    serve(provider, otherwise=REFUSED)
    send = make_send(ledger, count=60, status=SENDING)
    look(before)
    assert counts(ledger, send.id) == {"owed": 60}
    assert scalar(ledger, "SELECT count(*) FROM delivery WHERE next_attempt_at IS NOT NULL") == 0

    serve(provider)
    look(before)
    assert counts(ledger, send.id) == {"owed": 60}  # the isolation holds: nobody told this process anything new
    look(make_worker(**ches_settings(provider)))
    assert counts(ledger, send.id) == {"sent": 60}


def test_an_isolated_provider_is_called_by_one_window_and_then_by_one_call_per_restart(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    settings = ches_settings(provider)
    serve(provider, otherwise=REFUSED)
    send = make_send(ledger, count=60, status=SENDING)
    worker = make_worker(**settings)
    look(worker, times=10)
    assert len(provider.posts(EMAIL)) == 25
    for restarts in (1, 2):
        look(make_worker(**settings), times=10)
        assert len(provider.posts(EMAIL)) == 25 + restarts
    assert counts(ledger, send.id) == {"owed": 60}


@pytest.fixture
def redis_alone(tmp_path: Path) -> Iterator[LonelyRedis]:
    server = LonelyRedis(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_refused_account_costs_a_window_while_redis_is_away_and_one_more_when_it_comes_back_empty(
    ledger: Ledger, database_url: str, redis_alone: LonelyRedis, provider: ScriptedHttp
) -> None:
    with InProcess(make_settings(database_url, redis_alone.url, **ches_settings(provider))) as worker:
        serve(provider, otherwise=REFUSED)
        send = make_send(ledger, count=60, status=SENDING)
        worker.start(send)
        [message] = worker.messages(QueueName.EMAIL_BULK)
        redis_alone.kill()
        working = Thread(target=worker.call, args=[JobName.WORK_CHAIN], kwargs=message.kwargs)
        working.start()
        wait_until(lambda: len(provider.posts(EMAIL)) == 25, what="the window of a process alone")
        for _ in range(5):
            worker.tick()
        assert len(provider.posts(EMAIL)) == 25

        redis_alone.start()
        working.join()
        wait_until(lambda: reachable(worker), what="Redis seen again")
        look(worker, times=10)
        assert len(provider.posts(EMAIL)) == 50
        assert counts(ledger, send.id) == {"owed": 60}
    assert_books_balance(ledger)


def test_a_process_that_starts_without_redis_looks_again_with_the_first_beat_that_reaches_it(
    ledger: Ledger, database_url: str, redis_alone: LonelyRedis, provider: ScriptedHttp
) -> None:
    settings = make_settings(database_url, redis_alone.url, **ches_settings(provider))
    redis_alone.kill()
    with InProcess(settings) as late:
        redis_alone.start()
        with InProcess(settings) as first:
            serve(provider, otherwise=REFUSED)
            make_send(ledger, count=1, status=SENDING)
            look(first)
            assert isolated(first)
            wait_until(lambda: reachable(late), what="Redis seen again")
            for call in late.runtime.each_beat:
                call()
            assert not isolated(first)
            look(first)
            assert isolated(first)
            for call in late.runtime.each_beat:
                call()
            assert isolated(first)  # once is enough
    assert_books_balance(ledger)
