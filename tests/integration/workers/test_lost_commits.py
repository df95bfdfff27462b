"""What is asked of Postgres and done, while its answer is lost; and what a window leaves behind that ended badly."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

import psycopg
import pytest

from shared.domain.outcome import Outcome, Suppressed
from shared.domain.states import SendStatus
from shared.ledger import providers
from shared.ledger.db import Connection, Ledger
from tests.integration.workers.broken import Broken, make_window, run_through
from tests.integration.workers.ches import calls, refused, serve
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import attempts, put_outage, scalar
from tests.support.scripted_http import ScriptedHttp
from tests.support.waiting import wait_until
from workers.providers.protocol import Message

SENDING = SendStatus.SENDING


class Unheard(Ledger):
    """Commits, and the answer to the first commit is lost on the way."""

    lost = 0
    #: What happens while the caller waits for the answer.
    meanwhile = staticmethod(lambda: None)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with super().transaction() as connection:
            yield connection
        if not self.lost:
            self.lost += 1
            self.meanwhile()
            raise psycopg.OperationalError("the connection is lost")


@pytest.fixture
def unheard(ches: InProcess, database_url: str) -> Iterator[Unheard]:
    pool = Unheard(database_url, size=4, name="tidings unheard")
    pool.open()
    yield pool
    pool.close()


def test_a_claim_whose_commit_was_not_heard_of_is_given_back_and_leaves_nobody_unsure(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, unheard: Unheard
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    ches.start(send)
    ches.runtime.ledger, own = unheard, ches.runtime.ledger
    ches.work_off()
    ches.runtime.ledger = own
    assert unheard.lost == 1
    assert counts(ledger, send.id) == {"owed": 3}
    assert calls(provider) == {}
    ches.tick()
    ches.work_off()
    assert counts(ledger, send.id) == {"sent": 3}
    assert set(calls(provider).values()) == {1}


class Undone(Ledger):
    """Loses the first record of outcomes, as a deadlock would."""

    lost = 0

    @contextmanager
    def transaction_later_durable(self) -> Iterator[Connection]:
        with super().transaction_later_durable() as connection:
            yield connection
            if not self.lost:
                self.lost += 1
                raise psycopg.errors.DeadlockDetected("somebody was faster")


@pytest.fixture
def undone(ches: InProcess, database_url: str) -> Iterator[Undone]:
    pool = Undone(database_url, size=4, name="tidings undone")
    pool.open()
    yield pool
    pool.close()


@pytest.mark.parametrize("in_an_outage", [False, True])
def test_what_calls_said_of_the_provider_is_noted_though_the_first_commit_of_it_was_lost(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, undone: Undone, in_an_outage: bool
) -> None:
    put_outage(ledger, ches.credential(), since="80 hours", until="79 hours" if in_an_outage else "1 minute")
    if in_an_outage:
        serve(provider, otherwise=refused(503))
    send = make_send(ledger, status=SENDING)
    ches.start(send)
    ches.runtime.ledger, own = undone, ches.runtime.ledger
    ches.work_off()
    ches.runtime.ledger = own
    assert undone.lost == 1
    assert counts(ledger, send.id) == ({"retrying": 1} if in_an_outage else {"sent": 1})
    with ledger.autocommit() as connection:
        standing = providers.standing(connection, provider="ches", credential=ches.credential(), unbroken_s=7_200)
    assert (standing.outage_since is not None) == in_an_outage


def test_such_a_claim_is_given_back_also_where_the_lease_was_lost_meanwhile(
    ledger: Ledger, ches: InProcess, unheard: Unheard
) -> None:
    send = make_send(ledger, count=3, status=SENDING)

    def freeze() -> None:
        with ledger.autocommit() as connection:
            connection.execute("UPDATE worker SET lease_until = now() - interval '1 second'")
        ches.runtime.ledger = own
        ches.tick()
        assert counts(ledger, send.id) == {"unsure": 3}

    unheard.meanwhile = freeze  # type: ignore[method-assign, assignment]
    ches.start(send)
    ches.runtime.ledger, own = unheard, ches.runtime.ledger
    ches.work_off()
    assert counts(ledger, send.id) == {"owed": 3}


class Refused(Broken):
    """An adapter that tells of one recipient, and whose process is then told to end."""

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        yield 0, Suppressed("opted_out", "the recipient opted out")
        raise SystemExit(1)


def test_what_was_known_of_a_window_that_ended_badly_is_kept_with_all_that_follows_from_it(
    ledger: Ledger, worker: InProcess
) -> None:
    send = make_send(ledger, addresses=["refused@example.com", "other@example.com"], status=SENDING)
    with pytest.raises(SystemExit):
        run_through(worker, send, Refused())
    assert counts(ledger, send.id) == {"suppressed": 1, "unsure": 1}
    assert scalar(ledger, "SELECT address FROM suppression") == "refused@example.com"
    assert [attempt["code"] for attempt in attempts(ledger, send.id, 2)] == ["not_recorded"]
    assert scalar(ledger, "SELECT count(*) FROM failure_group") == 2


def test_recording_without_a_lease_does_not_meet_the_other_way_round_who_locks_the_send_first(
    ledger: Ledger, ches: InProcess
) -> None:
    send = make_send(ledger, count=3, status=SENDING)
    with ledger.transaction() as other:

        def freeze() -> None:
            with ledger.autocommit() as connection:
                connection.execute("UPDATE worker SET lease_until = now() - interval '1 second'")
            ches.tick()
            ches.runtime.lease.close()
            other.execute("SET LOCAL deadlock_timeout = '10ms'")
            other.execute("SELECT id FROM send WHERE id = %s FOR NO KEY UPDATE", [send.id])

        window = Thread(target=lambda: make_window(ches, send, before_the_calls=freeze))
        window.start()
        wait_until(
            lambda: scalar(
                ledger,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
        )
        other.execute("SELECT batch_no FROM batch WHERE send_id = %s FOR UPDATE", [send.id])
    window.join(20)
    assert counts(ledger, send.id) == {"owed": 3}
