"""Dispatchers that die, that run at the same time, that come too late; events that come from everywhere meanwhile."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.coordination.redis import RedisLink
from shared.coordination.single_flight import SingleFlight
from shared.domain.digest_retry import judge
from shared.domain.digests import ChannelType
from shared.domain.outcome import Accepted, Scope, Transient
from shared.domain.retry import RetryPolicy
from shared.jobs import JobName
from shared.ledger import digest_channels, notifications
from shared.ledger.db import Ledger
from shared.ledger.notifications import Claimed
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import LOOPBACK, age, make_channel, post, rows, statuses
from tests.support.ledger_rows import scalar
from tests.support.processes import ProcessStarter
from tests.support.scripted_http import HANG, Pause, ScriptedHttp, answer, free_port, scripted_http
from tests.support.waiting import wait_until
from workers.actors.digest import LOCK

HOOK = "/hook"


def keys_of(server: ScriptedHttp) -> list[list[str]]:
    return [[item["dedup_key"] for item in request.json()["data"]["items"]] for request in server.posts(HOOK)]


def ids_of(server: ScriptedHttp) -> list[str]:
    return [request.headers["webhook-id"] for request in server.posts(HOOK)]


def claim(ledger: Ledger, channel: int) -> Claimed | None:
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        notifications.detect(connection, channel)
        return notifications.claim(connection, taken, lease_s=60)


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK)


def test_one_that_died_between_claim_and_call_is_followed_under_the_same_id(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        channel = make_channel(ledger, server.url + HOOK)
        post(ledger, "a", "b")
        claimed = claim(ledger, channel)
        assert claimed is not None
        post(ledger, "new")
        worker.call(JobName.DIGEST, slot=0)
        assert server.posts(HOOK) == []  # its holder may be in the call
        age(ledger, "2 minutes")
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a", "b"], ["new"]]
        assert ids_of(server)[0] == str(claimed.digest.id)
        assert set(statuses(ledger).values()) == {"sent"}
        assert rows(ledger)["a"].attempts == 1


def test_one_that_is_killed_after_its_message_was_taken_costs_one_repeat_that_can_be_dropped(
    ledger: Ledger, worker: InProcess, process: ProcessStarter
) -> None:
    with scripted_http() as server:
        server.once(HOOK, [HANG])  # it has the message and never says so
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)
        post(ledger, "a")
        victim = process(
            ["dramatiq", "workers.main", "--queues", "ops", "--processes", "1", "--threads", "2"],
            env={name.upper(): value for name, value in LOOPBACK.items()},
            ready="ready for action",
        )
        worker.jobs.periodic(JobName.DIGEST, slot=0)
        wait_until(lambda: server.posts(HOOK), timeout=30)
        victim.kill()
        worker.call(JobName.DIGEST, slot=0)
        age(ledger, "2 minutes")
        worker.broker.client.delete("tidings:{digest}:lock")  # type: ignore[no-untyped-call]
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a"], ["a"]]
        assert len(set(ids_of(server))) == 1
        assert statuses(ledger) == {"a": "sent"}


def test_a_run_beside_another_says_so_and_tells_nothing(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)
        post(ledger, "a")
        with SingleFlight(worker.runtime.link, name=LOCK).hold() as flight:
            assert flight is not None
            worker.call(JobName.DIGEST, slot=0)
        assert scalar(ledger, "SELECT result ->> 'skipped' FROM digest_run") == "another run is under way"
        assert server.posts(HOOK) == []
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a"]]


def test_one_that_dies_in_every_call_ends_as_a_failure(ledger: Ledger, worker: InProcess) -> None:
    channel = make_channel(ledger, "http://127.0.0.1:9/hook")
    post(ledger, "a")
    for _ in range(4):
        assert claim(ledger, channel) is not None
        age(ledger, "2 minutes")
    worker.call(JobName.DIGEST, slot=0)
    row = rows(ledger)["a"]
    assert (row.status, row.attempts) == ("retrying", 1)
    assert "dispatcher_died" in (row.error or "")
    age(ledger, "5 minutes")
    worker.call(JobName.DIGEST, slot=0)  # and is called again like any other that failed
    assert "connect" in (rows(ledger)["a"].error or "")


def test_a_result_that_comes_too_late_changes_nothing(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        channel = make_channel(ledger, server.url + HOOK)
        post(ledger, "a")
        late = claim(ledger, channel)
        assert late is not None
        age(ledger, "2 minutes")
        worker.call(JobName.DIGEST, slot=0)
        assert statuses(ledger) == {"a": "sent"}
        failed = Transient(Scope.PROVIDER, "late")
        judged = judge(failed, late.digest.items, RetryPolicy(), now=late.digest.created_at)
        with ledger.transaction() as connection:
            assert not notifications.record(connection, late, judged, outcome="transient", error="late")
        assert (rows(ledger)["a"].status, rows(ledger)["a"].error) == ("sent", None)
        told = judge(Accepted(None), late.digest.items, RetryPolicy(), now=late.digest.created_at)
        with ledger.transaction() as connection:
            assert not notifications.record(connection, late, told, outcome="accepted", error=None)


def test_dispatchers_at_the_same_time_tell_each_thing_once_while_events_come_from_everywhere(
    ledger: Ledger, make_worker: MakeWorker
) -> None:
    # Namespaces of their own give each a lock of its own: as good as no lock at all.
    workers = [make_worker(**LOOPBACK, redis_namespace=f"alone-{number}") for number in range(3)]
    writers, each = 8, 40
    with scripted_http() as server:
        server.always(HOOK, [Pause(0.05), *answer(200)])
        server.always("/other", answer(200))
        make_channel(ledger, server.url + HOOK)
        make_channel(ledger, server.url + "/other", name="other")
        done = threading.Event()

        def write(number: int) -> None:
            for n in range(each):
                post(ledger, f"w{number}-{n}", "abc", "def")

        def dispatch(worker: InProcess) -> None:
            while not done.is_set():
                worker.call(JobName.DIGEST, slot=0)

        with ThreadPoolExecutor(writers + len(workers)) as pool:
            running = [pool.submit(dispatch, worker) for worker in workers]
            for writer in [pool.submit(write, number) for number in range(writers)]:
                writer.result()
            done.set()
            for dispatcher in running:
                dispatcher.result()
        for _ in range(10):
            workers[0].call(JobName.DIGEST, slot=0)
        wanted = {f"w{number}-{n}" for number in range(writers) for n in range(each)} | {"abc", "def"}
        for path in (HOOK, "/other"):
            told = Counter(
                item["dedup_key"] for request in server.posts(path) for item in request.json()["data"]["items"]
            )
            assert told == Counter(wanted)
        assert set(statuses(ledger).values()) == {"sent"}


def test_two_ticks_at_the_same_moment_make_one_message(ledger: Ledger, make_worker: MakeWorker) -> None:
    workers = [make_worker(**LOOPBACK) for _ in range(2)]
    with scripted_http() as server:
        server.always(HOOK, [Pause(0.3), *answer(200)])
        make_channel(ledger, server.url + HOOK)
        post(ledger, *(f"e{n}" for n in range(50)))
        gate = threading.Barrier(2)

        def dispatch(worker: InProcess) -> None:
            gate.wait()
            worker.call(JobName.DIGEST, slot=0)

        with ThreadPoolExecutor(2) as pool:
            for running in [pool.submit(dispatch, worker) for worker in workers]:
                running.result()
        assert [len(keys) for keys in keys_of(server)] == [50]


def test_an_event_that_comes_during_the_call_goes_with_the_next_message(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:

        def step(request: object) -> object:
            if len(server.posts(HOOK)) == 1:
                post(ledger, "meanwhile")
            return answer(200)

        server.always(HOOK, step)  # type: ignore[arg-type]
        make_channel(ledger, server.url + HOOK)
        post(ledger, "a")
        worker.call(JobName.DIGEST, slot=0)
        worker.call(JobName.DIGEST, slot=0)
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a"], ["meanwhile"]]


def test_without_redis_digests_are_told_all_the_same(ledger: Ledger, make_worker: MakeWorker) -> None:
    lost = make_worker(**LOOPBACK)
    lost.runtime.link = RedisLink(f"redis://127.0.0.1:{free_port()}/0")
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)
        post(ledger, "a")
        lost.call(JobName.DIGEST, slot=0)
        assert statuses(ledger) == {"a": "sent"}


def held_up_before_its_call(ledger: Ledger, worker: InProcess, meanwhile: Callable[[], None]) -> None:
    """A dispatcher that has claimed what is due on `ops`, and stands still while something happens; then it goes on."""
    make_channel(ledger, name="then-mail", type_=ChannelType.EMAIL, setup={"to": ["ada@example.com"]})
    post(ledger, "a")
    with ThreadPoolExecutor(1) as pool:
        with ledger.transaction() as connection:
            connection.execute("LOCK TABLE delivery IN SHARE MODE")  # what the e-mail digest is stored in
            running = pool.submit(worker.call, JobName.DIGEST, slot=0)
            wait_until(lambda: waits_for_a_lock(ledger), timeout=30, what="it to stand still")
            with ledger.transaction() as own:
                own.execute("UPDATE digest_channel SET enabled = false WHERE name = 'then-mail'")
            meanwhile()
        running.result()


def waits_for_a_lock(ledger: Ledger) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(scalar(ledger, waiting))


def test_one_that_lost_its_claim_while_it_stood_still_does_not_call(ledger: Ledger, make_worker: MakeWorker) -> None:
    first, second = (make_worker(**LOOPBACK, redis_namespace=f"alone-{number}") for number in range(2))
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)

        def follow() -> None:
            age(ledger, "2 minutes")
            second.call(JobName.DIGEST, slot=0)
            assert keys_of(server) == [["a"]]

        held_up_before_its_call(ledger, first, follow)
        assert keys_of(server) == [["a"]]
        assert (statuses(ledger), rows(ledger)["a"].attempts) == ({"a": "sent"}, 1)


def test_one_with_too_little_left_of_its_claim_gives_it_back(ledger: Ledger, worker: InProcess) -> None:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)
        held_up_before_its_call(ledger, worker, lambda: age(ledger, "35 seconds"))
        assert server.posts(HOOK) == []
        row = rows(ledger)["a"]
        assert (row.status, row.attempts, row.batch) == ("pending", 0, None)
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a"]]


def test_one_that_lost_the_lock_while_it_stood_still_does_not_call(
    ledger: Ledger, worker: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        make_channel(ledger, server.url + HOOK)

        def lose() -> None:
            worker.broker.client.delete("tidings:{digest}:lock")  # type: ignore[no-untyped-call]
            wait_until(lambda: "single_flight_lost" in caplog.messages, timeout=30, what="it to be told")

        held_up_before_its_call(ledger, worker, lose)
        assert server.posts(HOOK) == []
        worker.call(JobName.DIGEST, slot=0)
        assert keys_of(server) == [["a"]]
