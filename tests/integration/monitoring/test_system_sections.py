"""What the snapshot says of the machinery, against the stores themselves."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from flask import Flask

from admin.extensions import installed
from admin.monitoring.snapshot import build
from shared.coordination.circuit import Circuit
from shared.coordination.heartbeat import Heartbeat, Identity
from shared.coordination.redis import RedisLink
from shared.domain.states import Lane, Mode, SendStatus
from shared.jobs import JobName, Jobs, QueueName, make_broker
from shared.ledger import pauses, providers
from shared.ledger.db import Ledger
from shared.recovery.holds import Holds
from shared.recovery.reconciler import Reconciler
from shared.settings import Settings, load
from tests.integration.api.conftest import app, make_app
from tests.support.factories import make_send
from tests.support.ledger_rows import put_rows, put_send

__all__ = ["app", "make_app"]


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    """Live e-mail and SMS go to the sandbox."""
    return load(database_url=database_url, redis_url=redis_url, email_provider="sandbox", sms_provider="sandbox")


@pytest.fixture
def look(app: Flask) -> Any:
    """Sample the document anew."""
    return lambda: SimpleNamespace(**build(installed(app), None))


@pytest.fixture
def link(redis_url: str) -> Iterator[RedisLink]:
    link = RedisLink(redis_url, timeout_s=2)
    yield link
    link.close()


def data(found: Any, section: str) -> Any:
    entry = found.sections[section]
    assert entry["status"] == "ok", entry
    return entry["data"]


def by(rows: list[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    return {row[name]: row for row in rows}


def test_a_new_installation_has_every_section_and_no_alarm(look: Any) -> None:
    found = look()
    for section in ("postgres", "redis", "queues", "workers", "providers", "work", "traffic", "recovery"):
        data(found, section)
    assert data(found, "postgres")["schema"]
    assert abs(data(found, "postgres")["skew_s"]) < 5
    assert abs(data(found, "redis")["skew_s"]) < 5
    assert data(found, "redis")["eviction_policy"] == "noeviction"
    assert {row["queue"] for row in data(found, "queues")["queues"]} == {name.value for name in QueueName}
    assert found.verdict["text"] == "Sending normally."


def test_due_work_is_that_of_sends_in_progress_that_nobody_holds_and_whose_time_has_come(
    look: Any, ledger: Ledger
) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING, age="10 minutes")
    make_send(ledger, count=2, lane=Lane.SINGLE, status=SendStatus.SENDING)
    make_send(ledger, count=5, status=SendStatus.SENDING, mode=Mode.TEST)
    put_send(ledger, make_send(ledger, count=7, status=SendStatus.SENDING).id, SendStatus.PAUSED)
    later = make_send(ledger, count=9, status=SendStatus.SENDING)
    put_rows(ledger, later.id, range(1, 10), "retrying", due_in="10 minutes", attempts=1)

    due = data(look(), "work")["due"]
    assert sorted((row["queue"], row["mode"], row["due"]) for row in due) == [
        ("email", "live", 2),
        ("email_bulk", "live", 30),
        ("email_bulk", "test", 5),
    ]


def test_age_counts_from_a_release_and_not_from_before_it(look: Any, ledger: Ledger) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING, age="2 hours")
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '2 hours'")
        connection.execute("INSERT INTO provider_state VALUES ('sandbox', 'sandbox', now() - interval '2 hours')")

    def rules() -> set[str]:
        return {warning["rule"] for warning in look().warnings}

    assert "NothingMoving" in rules()
    with ledger.transaction() as connection:
        pauses.pause(connection, "email_bulk", operator="kim", reason="a trial")
    assert "NothingMoving" not in rules()
    assert "QueuePaused" in rules()
    with ledger.transaction() as connection:
        pauses.resume(connection, "email_bulk", operator="kim")
    assert "NothingMoving" not in rules()
    with ledger.transaction() as connection:
        connection.execute("UPDATE audit SET at = at - interval '6 minutes'")
    assert "NothingMoving" in rules()


def test_letting_go_of_something_leaves_the_age_of_other_work(
    look: Any, ledger: Ledger, app: Flask, link: RedisLink
) -> None:
    for lane in (Lane.BULK, Lane.SINGLE):
        make_send(ledger, lane=lane, status=SendStatus.SENDING, age="2 hours")
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '2 hours'")
        for queue in ("email_bulk", "sms"):
            pauses.pause(connection, queue, operator="kim", reason="a trial")
            pauses.resume(connection, queue, operator="kim")
        pauses.resume(connection, "email", operator="kim")  # which nobody had paused

    def old() -> set[str]:
        begun = datetime.now(UTC) - timedelta(hours=1)
        due = data(look(), "work")["due"]
        return {row["queue"] for row in due if datetime.fromisoformat(row["oldest_due_at"]) < begun}

    assert old() == {"email"}
    holds = Holds(ledger.transaction, link, installed(app).settings)
    holds.hold("smtp", "another", operator="kim", reason="a trial")
    holds.release("smtp", "another", operator="kim")
    assert old() == {"email"}
    holds.hold("sandbox", "sandbox", operator="kim", reason="a trial")
    holds.release("sandbox", "sandbox", operator="kim")
    assert old() == set()


def test_a_queue_is_told_of_with_its_messages_its_workers_and_since_when_it_has_none(
    look: Any, settings: Settings, link: RedisLink, redis_url: str
) -> None:
    broker = make_broker(redis_url, namespace=settings.redis_namespace, heartbeat_timeout_ms=20_000)
    Jobs(broker).periodic(JobName.DUE_WORK, slot=1)
    worker = Heartbeat(link, Identity("w1", "ops.1", "worker_ops", "1.0", ("ops", "digests"), threads=2))
    worker.beat()

    queues = by(data(look(), "queues")["queues"], "queue")
    assert (queues["ops"]["ready"], queues["ops"]["workers"], queues["ops"]["health"]) == (1, 1, "moving")
    assert queues["ops"]["oldest_at"]
    assert queues["ops"]["no_worker_since"] is None
    assert queues["digests"]["workers"] == 1, "the list is the registry's, not this process's"
    assert (queues["email"]["health"], queues["email"]["no_worker_since"]) == ("no worker", None)

    worker.stop()
    found = look()
    assert by(data(found, "queues")["queues"], "queue")["ops"]["no_worker_since"]
    (warning,) = [each for each in found.warnings if each["rule"] == "NoWorkers"]
    assert warning["text"] == "No running worker on queue `ops`; 1 message waits."
    broker.close()


def test_a_worker_is_told_of_with_its_drain_and_what_it_leaves_alone(look: Any, link: RedisLink) -> None:
    worker = Heartbeat(
        link,
        Identity("w1", "send.1", "worker_send", "1.0", ("email", "sms"), threads=2),
        paused=lambda: ["email"],
    )
    worker.progress("t1", busy=True)
    worker.drain(105)
    worker.beat()
    (row,) = data(look(), "workers")["workers"]
    assert (row["word"], row["busy"], row["threads"], row["drain_s"]) == ("shutting down", 1, 2, 105)
    assert 90 < row["seconds_left"] <= 105
    worker.stop()
    assert data(look(), "workers")["workers"] == []


def test_a_killed_worker_leaves_the_list_of_those_that_consume_within_seconds_and_is_shown_as_gone(
    look: Any, link: RedisLink, redis_url: str
) -> None:
    Heartbeat(link, Identity("w1", "send.1", "worker_send", "1.0", ("email",), threads=2)).beat()
    with redis.Redis.from_url(redis_url) as client:
        client.zadd("tidings:workers", {"w1": int(datetime.now(UTC).timestamp() * 1000) - 70_000})
    found = look()
    (row,) = data(found, "workers")["workers"]
    assert row["word"] == "gone"
    assert by(data(found, "queues")["queues"], "queue")["email"]["workers"] == 0


def test_a_provider_is_told_of_with_circuit_isolation_and_hold(
    look: Any, ledger: Ledger, link: RedisLink, settings: Settings
) -> None:
    circuit = Circuit(link, provider="sandbox", credential="sandbox", namespace=settings.redis_namespace)
    circuit.isolate(reason="the key was refused", code="http_401")
    (row,) = [each for each in data(look(), "providers")["providers"] if each["provider"] == "sandbox"]
    assert row["word"] == "isolated"
    assert row["isolation"]["reason"] == "the key was refused"
    assert {"channel": "email", "mode": "test"} in row["serves"]

    with ledger.transaction() as connection:
        providers.hold(connection, provider="sandbox", credential="sandbox", operator="kim", reason="moving")
    found = look()
    (account,) = data(found, "work")["accounts"]
    assert account["hold"]["by"] == "kim"
    assert "ProviderHeld" in {warning["rule"] for warning in found.warnings}


def test_a_pass_is_told_of_and_what_it_finds_wrong_in_the_books_is_the_first_thing_said(
    look: Any, ledger: Ledger, link: RedisLink, settings: Settings, redis_url: str
) -> None:
    broker = make_broker(redis_url, namespace=settings.redis_namespace, heartbeat_timeout_ms=20_000)
    reconciler = Reconciler(ledger, link, Jobs(broker), settings, worker="by hand", first_look_s={})
    send = make_send(ledger, count=30, status=SendStatus.SENDING)
    assert reconciler.run_pass() is not None
    recovery = data(look(), "recovery")
    assert recovery["last_pass_by"] == "by hand"
    assert recovery["unaccounted"] is None
    assert by(recovery["kinds"], "kind")["batch"]["found"] == 0

    with ledger.transaction() as connection:
        connection.execute("UPDATE send SET accepted = '{\"email\": 33}' WHERE id = %s", [send.id])
    assert reconciler.run_pass() is not None
    found = look()
    assert data(found, "recovery")["unaccounted"]["deliveries"] == 3
    assert found.verdict["text"] == f"3 deliveries are unaccounted for in the books of send {send.id}."
    assert found.verdict["severity"] == "critical"
    broker.close()
