"""Dispatch against an endpoint that does as it is told: what is told, when, once, and what becomes of what is not."""

import base64
import hashlib
import hmac
import logging
from typing import Any

import pytest

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.digests import DIGEST_CAP, Severity
from shared.jobs import JobName
from shared.ledger import notifications
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import LOOPBACK, SECRET, age, event, finding, make_channel, post, put, rows, statuses
from tests.support.requeuing import requeue_dead_letters
from tests.support.scripted_http import CLOSE, ScriptedHttp, answer, free_port, scripted_http

HOOK = "/hook"


@pytest.fixture
def endpoint() -> Any:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        yield server


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK)


def run(worker: InProcess) -> None:
    worker.call(JobName.DIGEST, slot=0)


def keys_of(request: Any) -> list[str]:
    return [item["dedup_key"] for item in request.json()["data"]["items"]]


def test_everything_due_is_told_in_one_signed_message(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK, setup=None)
    post(ledger, event("a", severity=Severity.LOW, details={"version": 1.5}), event("b", severity=Severity.CRITICAL))
    put(ledger, "c")
    run(worker)
    (request,) = endpoint.posts(HOOK)
    assert keys_of(request) == ["b", "c", "a"]
    told = {item["dedup_key"]: item for item in request.json()["data"]["items"]}
    assert told["a"]["details"] == {"version": 1.5}
    assert told["c"]["finding"] == "c"
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    assert (
        request.headers["webhook-signature"]
        == "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    )
    found = rows(ledger)
    assert {row.status for row in found.values()} == {"sent"}
    assert {str(row.batch) for row in found.values()} == {request.headers["webhook-id"]}
    assert all(row.sent and row.due_in is None for row in found.values())


def test_when_nothing_is_due_the_channel_is_not_called(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    run(worker)
    post(ledger, "a")
    run(worker)
    run(worker)
    assert len(endpoint.posts(HOOK)) == 1


def test_what_was_there_before_a_channel_is_not_told_unless_it_asks(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    post(ledger, "old")
    put(ledger, "old finding")
    make_channel(ledger, endpoint.url + HOOK)
    make_channel(ledger, endpoint.url + "/all", name="all", tells_existing=True)
    endpoint.always("/all", answer(204))
    post(ledger, "new")
    run(worker)
    assert keys_of(endpoint.posts(HOOK)[0]) == ["new"]
    assert statuses(ledger) == {"old": "suppressed", "old finding": "suppressed", "new": "sent"}
    assert sorted(keys_of(endpoint.posts("/all")[0])) == ["new", "old", "old finding"]


def test_a_channel_hears_its_kinds_from_its_severity_on(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK, kinds=["cve"], min_severity=Severity.HIGH)
    post(ledger, event("other kind"), event("mild", kind="cve", severity=Severity.MEDIUM), event("told", kind="cve"))
    run(worker)
    assert statuses(ledger) == {"told": "sent"}


def test_another_tenant_hears_nothing(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK, tenant="other")
    post(ledger, "a")
    run(worker)
    assert endpoint.posts(HOOK) == []


def test_getting_worse_is_told_coming_back_is_not_and_another_key_is(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK, min_severity=Severity.HIGH)
    put(ledger, finding("f", severity=Severity.LOW))
    post(ledger, event("e", severity=Severity.LOW))
    run(worker)
    assert endpoint.posts(HOOK) == []
    put(ledger, finding("f", severity=Severity.HIGH))
    post(ledger, event("e", severity=Severity.HIGH))
    run(worker)
    assert sorted(keys_of(endpoint.posts(HOOK)[0])) == ["e", "f"]
    put(ledger, finding("f", active=False))
    run(worker)
    put(ledger, finding("f", severity=Severity.CRITICAL))
    run(worker)
    assert len(endpoint.posts(HOOK)) == 1
    put(ledger, finding("f", dedup_key="f 1.3"))
    run(worker)
    assert keys_of(endpoint.posts(HOOK)[1]) == ["f 1.3"]


def test_a_message_holds_at_most_fifty_and_the_rest_is_counted_and_carried(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    post(ledger, *(f"e{n:03}" for n in range(DIGEST_CAP + 7)))
    run(worker)
    run(worker)
    run(worker)
    first, second = endpoint.posts(HOOK)
    assert (len(keys_of(first)), first.json()["data"]["left"]) == (DIGEST_CAP, 7)
    assert (len(keys_of(second)), second.json()["data"]["left"]) == (7, 0)
    assert len({*keys_of(first), *keys_of(second)}) == DIGEST_CAP + 7


def test_a_failure_puts_the_batch_into_backoff_which_doubles_and_the_fifth_is_the_last(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp, caplog: pytest.LogCaptureFixture
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.always(HOOK, answer(503, {"error": "later"}, {"Retry-After": "1"}))
    post(ledger, "a", "b")
    waits = []
    for failure in range(1, 5):
        run(worker)
        found = rows(ledger)
        assert {(row.status, row.attempts, row.batch) for row in found.values()} == {("retrying", failure, None)}
        waits.append([row.due_in for row in found.values()])
        run(worker)
        assert len(endpoint.posts(HOOK)) == failure  # nothing is due: it is not called
        age(ledger, f"{5 * 2 ** (failure - 1)} minutes")
    for wait, minutes in zip(waits, (5, 10, 20, 40), strict=True):
        assert all(60 * minutes - 20 < due <= 60 * minutes for due in wait if due is not None)
    with caplog.at_level(logging.WARNING):
        run(worker)
    for row in rows(ledger).values():
        assert (row.status, row.attempts, row.due_in) == ("dead_lettered", 5, None)
        assert row.error is not None
        assert "503" in row.error
    dead = [record.__dict__ for record in caplog.records if record.message == "notification_dead_lettered"]
    assert sorted(
        (line["event_id"], line["channel"], line["kind"], line["subject"], line["attempt_count"]) for line in dead
    ) == [
        (3605, "ops", "update", "about a", 5),
        (3605, "ops", "update", "about b", 5),
    ]
    age(ledger, "10 days")
    post(ledger, "a", "b")
    endpoint.always(HOOK, answer(200))
    run(worker)
    assert set(statuses(ledger).values()) == {"dead_lettered"}
    assert len(endpoint.posts(HOOK)) == 5
    with ledger.autocommit() as connection:
        counted = {(kind, became): count for _, kind, became, count in notifications.counts(connection)}
    assert counted == {("update", "transient"): 8, ("update", "dead_lettered"): 2}


def test_recovery_tells_what_failed_and_what_came_since_in_one_message(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, *[answer(500)] * 3)
    post(ledger, "a", "b")
    run(worker)
    age(ledger, "5 minutes")
    post(ledger, "new")
    run(worker)
    request = endpoint.posts(HOOK)[-1]
    assert sorted(keys_of(request)) == ["a", "b", "new"]
    assert request.headers["webhook-id"] != endpoint.posts(HOOK)[0].headers["webhook-id"]
    found = rows(ledger)
    assert {row.status for row in found.values()} == {"sent"}
    assert {str(row.batch) for row in found.values()} == {request.headers["webhook-id"]}
    assert "500" in (found["a"].error or "")
    assert found["new"].error is None


def test_what_is_not_due_is_left_alone_when_something_new_is(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(400))
    post(ledger, "a")
    run(worker)
    post(ledger, "new")
    run(worker)
    assert keys_of(endpoint.posts(HOOK)[1]) == ["new"]
    assert statuses(ledger) == {"a": "retrying", "new": "sent"}


def test_a_channel_has_its_own_retry_settings(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK, retry_base_delay_ms=60_000, max_delivery_attempts=2)
    endpoint.always(HOOK, answer(400))
    post(ledger, "a")
    run(worker)
    assert 40 < (rows(ledger)["a"].due_in or 0) <= 60
    age(ledger, "1 minute")
    run(worker)
    assert rows(ledger)["a"].status == "dead_lettered"


@pytest.mark.parametrize("status", [401, 403, 404, 410, 302])
def test_a_channel_that_refuses_us_costs_no_attempt_and_is_looked_at_less_and_less(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.always(HOOK, answer(status, {"error": "no"}))
    post(ledger, "a")
    with caplog.at_level(logging.WARNING):
        run(worker)
        run(worker)
        age(ledger, "5 minutes")
        run(worker)
    assert len(endpoint.posts(HOOK)) == 2
    row = rows(ledger)["a"]
    assert (row.status, row.attempts) == ("pending", 0)
    with ledger.autocommit() as connection:
        shown = notifications_state(connection)
    assert str(status) in shown[0]
    assert 280 < shown[1] <= 301
    assert [record.message for record in caplog.records].count("digest_channel_not_configured") == 1
    endpoint.always(HOOK, answer(200))
    age(ledger, "10 minutes")
    run(worker)
    assert rows(ledger)["a"].status == "sent"
    with ledger.autocommit() as connection:
        assert notifications_state(connection) == (None, None)


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ({}, "its address must be https://"),
        ({"digest_plain_http_hosts": "127.0.0.1"}, "its address is no public address"),
        ({"digest_plain_http_hosts": "localhost"}, "its host has no public address"),
    ],
    ids=["the settings allow it no more", "nor an address that is private", "its name leads to a private one by now"],
)
def test_the_address_of_a_channel_is_held_against_what_is_allowed_at_each_call(
    ledger: Ledger, make_worker: MakeWorker, endpoint: ScriptedHttp, allowed: dict[str, str], said: str
) -> None:
    host = "localhost" if "localhost" in allowed.values() else "127.0.0.1"
    make_channel(ledger, f"http://{host}:{endpoint.port}{HOOK}")
    post(ledger, "a")
    run(make_worker(**allowed))
    assert endpoint.posts(HOOK) == []
    row = rows(ledger)["a"]
    assert (row.status, row.attempts) == ("pending", 0)
    with ledger.autocommit() as connection:
        assert said in notifications_state(connection)[0]


def notifications_state(connection: Any) -> Any:
    return connection.execute(
        "SELECT not_configured, extract(epoch FROM wait_until - now())::float8 FROM digest_channel"
    ).fetchone()


def test_being_told_to_wait_costs_no_attempt(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(429, None, {"Retry-After": "120"}))
    post(ledger, "a")
    run(worker)
    run(worker)
    assert len(endpoint.posts(HOOK)) == 1
    assert (rows(ledger)["a"].status, rows(ledger)["a"].attempts) == ("pending", 0)
    age(ledger, "2 minutes")
    run(worker)
    assert rows(ledger)["a"].status == "sent"


def test_a_closed_port_is_tried_again_and_nothing_is_frozen(ledger: Ledger, worker: InProcess) -> None:
    make_channel(ledger, f"http://127.0.0.1:{free_port()}/hook")
    post(ledger, "a")
    run(worker)
    row = rows(ledger)["a"]
    assert (row.status, row.attempts, row.batch) == ("retrying", 1, None)


def test_a_server_error_is_repeated_within_the_call_under_the_same_id(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(500), answer(408))
    post(ledger, "a")
    run(worker)
    tries = endpoint.posts(HOOK)
    assert len(tries) == 3
    assert len({request.headers["webhook-id"] for request in tries}) == 1
    assert rows(ledger)["a"].status == "sent"
    assert rows(ledger)["a"].attempts == 1


def test_what_may_have_been_taken_is_repeated_as_it_was_under_its_id_and_new_ones_go_apart(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, *[[CLOSE]] * 3)
    post(ledger, "a")
    run(worker)
    frozen = rows(ledger)["a"]
    assert (frozen.status, frozen.attempts) == ("retrying", 1)
    assert frozen.batch is not None
    post(ledger, "new")
    run(worker)  # the new one does not wait for the frozen set
    age(ledger, "5 minutes")
    post(ledger, "newer")
    run(worker)  # the frozen set first, then, since that was taken, what has become due besides
    sent = [(request.headers["webhook-id"], keys_of(request)) for request in endpoint.posts(HOOK)[3:]]
    assert [keys for _, keys in sent] == [["new"], ["a"], ["newer"]]
    assert sent[1][0] == str(frozen.batch)
    assert {request.headers["webhook-id"] for request in endpoint.posts(HOOK)[:3]} == {str(frozen.batch)}
    assert set(statuses(ledger).values()) == {"sent"}


def test_a_frozen_set_stays_one_when_its_repeat_surely_failed(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, *[[CLOSE]] * 3, answer(400), answer(429), answer(404))
    post(ledger, "a")
    for _ in range(5):
        run(worker)
        age(ledger, "61 minutes")
    assert len({request.headers["webhook-id"] for request in endpoint.posts(HOOK)}) == 1
    assert (rows(ledger)["a"].status, rows(ledger)["a"].attempts) == ("sent", 3)


def test_a_dead_letter_is_told_again_when_a_person_asks(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK, max_delivery_attempts=1)
    endpoint.once(HOOK, answer(400))
    post(ledger, "a")
    run(worker)
    assert statuses(ledger) == {"a": "dead_lettered"}
    with ledger.transaction() as connection:
        assert requeue_dead_letters(connection, DeadLetterFilter()) == 1
    run(worker)
    assert statuses(ledger) == {"a": "sent"}


def test_a_secret_that_the_endpoint_repeats_is_not_kept(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    setup = {
        "url": f"{endpoint.url}{HOOK}?token=tok-12345",
        "signing_secret": SECRET,
        "auth_header": "Authorization: Bearer s3cret-value",
    }
    make_channel(ledger, setup=setup)
    endpoint.always(HOOK, lambda request: answer(400, f"{request.path} {request.headers['authorization']}".encode()))
    post(ledger, "a")
    run(worker)
    assert endpoint.posts(HOOK)[0].headers["authorization"] == "Bearer s3cret-value"
    error = rows(ledger)["a"].error or ""
    assert "400" in error
    assert "s3cret" not in error
    assert "tok-12345" not in error


def test_of_a_long_answer_the_beginning_is_kept(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK, max_delivery_attempts=1)
    endpoint.always(HOOK, answer(400, ("no such hook, " * 500 + "ü").encode()))
    post(ledger, "a")
    run(worker)
    row = rows(ledger)["a"]
    assert row.status == "dead_lettered"
    assert "no such hook" in (row.error or "")
    assert len(row.error or "") <= 1_024
