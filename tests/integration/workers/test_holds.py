"""An operator's hold: kept by the ledger, told to Redis, and true whatever Redis says."""

import pytest
import redis

from shared.coordination.redis import RedisLink
from shared.domain.states import Channel, Mode, SendStatus
from shared.jobs import JobName
from shared.ledger import audit, providers
from shared.ledger.db import Ledger
from shared.recovery.holds import Holds
from shared.recovery.waits import Waits, circuit_of
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import put_rows

ACCOUNT = ("sandbox", "sandbox")


def holds_of(worker: InProcess) -> Holds:
    return Holds(worker.runtime.ledger.transaction, worker.runtime.link, worker.settings)


def flush(worker: InProcess) -> None:
    with redis.Redis.from_url(worker.settings.redis_url.get_secret_value()) as client:
        client.flushdb()


def told(worker: InProcess) -> str | None:
    """Who holds the sandbox, as Redis tells it."""
    hold = circuit_of(worker.runtime.link, worker.settings, *ACCOUNT).snapshot().hold
    return None if hold is None else f"{hold.by}: {hold.reason}"


@pytest.fixture
def away(worker: InProcess) -> Holds:
    """Like `holds_of`, with a Redis that does not answer."""
    return Holds(worker.runtime.ledger.transaction, RedisLink("redis://127.0.0.1:1"), worker.settings)


def test_a_hold_outlives_a_redis_that_is_emptied(worker: InProcess, ledger: Ledger) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    assert holds_of(worker).hold(*ACCOUNT, operator="kim", reason="maintenance").result == "held"
    flush(worker)

    worker.run(send)  # its chain's message is there: Redis would let it call

    assert counts(ledger, send.id) == {"owed": 3}
    assert told(worker) == "kim: maintenance"
    assert Waits(worker.runtime.link, worker.settings).reason(Channel.EMAIL, Mode.LIVE) == "hold"


def test_a_tick_tells_redis_again_since_when_it_is_held(worker: InProcess) -> None:
    holds_of(worker).hold(*ACCOUNT, operator="kim", reason="maintenance")
    circuit = circuit_of(worker.runtime.link, worker.settings, *ACCOUNT)
    before = circuit.snapshot().hold
    flush(worker)
    worker.tick()
    assert circuit.snapshot().hold == before
    assert holds_of(worker).mirror() == 0


def test_what_is_released_while_redis_is_away_is_released_there_with_the_next_tick(
    worker: InProcess, ledger: Ledger, away: Holds
) -> None:
    assert holds_of(worker).hold(*ACCOUNT, operator="kim", reason="maintenance").told
    assert not away.release(*ACCOUNT, operator="lee").told
    assert told(worker) == "kim: maintenance"
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    worker.tick()
    worker.work_off()
    assert told(worker) is None
    assert counts(ledger, send.id) == {"sent": 3}


def test_a_hold_made_while_redis_is_away_holds_at_once(worker: InProcess, ledger: Ledger, away: Holds) -> None:
    send = make_send(ledger, count=3, status=SendStatus.SENDING)
    worker.start(send)
    assert not away.hold(*ACCOUNT, operator="kim", reason="maintenance").told
    worker.work_off()
    assert counts(ledger, send.id) == {"owed": 3}


def test_a_new_reason_is_told_and_the_hold_is_as_old_as_it_was(worker: InProcess, away: Holds) -> None:
    holds_of(worker).hold(*ACCOUNT, operator="kim", reason="maintenance")
    with worker.runtime.ledger.autocommit() as connection:
        connection.execute("UPDATE provider_hold SET since = since - interval '1 hour'")
        since = providers.holds(connection)[0].since
    again = away.hold(*ACCOUNT, operator="lee", reason="they asked us to")
    assert (again.changed, again.result) == (False, "held already; the reason is now yours")
    worker.tick()
    assert told(worker) == "lee: they asked us to"
    hold = circuit_of(worker.runtime.link, worker.settings, *ACCOUNT).snapshot().hold
    assert hold is not None
    assert abs((hold.since - since).total_seconds()) < 0.01


def test_a_hold_that_only_redis_knows_is_taken_over_by_the_ledger(worker: InProcess, ledger: Ledger) -> None:
    circuit_of(worker.runtime.link, worker.settings, *ACCOUNT).hold(by="kim", reason="before the upgrade")
    worker.tick()
    flush(worker)
    worker.tick()
    assert told(worker) == "kim: before the upgrade"
    with ledger.autocommit() as connection:
        entries = audit.newest(connection, limit=5)
    assert [(entry.action, entry.target, entry.result) for entry in entries] == [
        ("hold", "provider sandbox:sandbox", "kept in the ledger now")
    ]


def test_both_deeds_are_audited_with_their_reason(worker: InProcess, ledger: Ledger) -> None:
    holds = holds_of(worker)
    holds.hold(*ACCOUNT, operator="kim", reason="maintenance")
    holds.release(*ACCOUNT, operator="lee", reason="it is over")
    assert holds.release(*ACCOUNT, operator="lee").result == "was not held"
    with ledger.autocommit() as connection:
        entries = audit.newest(connection, limit=5)
    assert [(entry.operator, entry.action, entry.reason, entry.result) for entry in reversed(entries)] == [
        ("kim", "hold", "maintenance", "held"),
        ("lee", "release", "it is over", "released"),
        ("lee", "release", None, "was not held"),
    ]


def test_no_look_is_made_at_a_provider_that_is_held(worker: InProcess, ledger: Ledger, away: Holds) -> None:
    send = make_send(ledger, count=1, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1], "unsure", attempts=1, prove_in="-1 second")
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE delivery SET provider = 'sandbox', credential = 'sandbox', first_attempt_at = last_attempt_at"
        )
    away.hold(*ACCOUNT, operator="kim", reason="maintenance")
    worker.call(JobName.PROVE, slot=1)
    with ledger.autocommit() as connection:
        row = connection.execute(
            "SELECT prove_count, prove_at > now() + interval '50 seconds' FROM delivery"
        ).fetchone()
        assert row == (0, True)
        connection.execute("UPDATE delivery SET prove_at = now() - interval '1 second'")
        connection.execute("UPDATE batch SET prove_at = now() - interval '1 second'")
    away.release(*ACCOUNT, operator="kim")
    worker.call(JobName.PROVE, slot=1)
    with ledger.autocommit() as connection:
        assert connection.execute("SELECT status, prove_count FROM delivery").fetchone() != ("unsure", 0)
