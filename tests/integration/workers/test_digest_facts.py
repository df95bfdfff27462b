"""What a digest says is so when it is told, and an answer changes the set-up that got it and no other."""

from typing import Any

import pytest

from shared.domain.digest_channels import Setup
from shared.domain.digests import DIGEST_CAP, Severity
from shared.jobs import JobName
from shared.ledger import digest_channels, digest_setup, events, notifications
from shared.ledger.db import Ledger
from shared.ledger.digest_channels import Wishes
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import LOOPBACK, age, event, finding, make_channel, post, put, rows
from tests.support.factories import make_tenant
from tests.support.ledger_rows import scalar
from tests.support.scripted_http import CLOSE, ScriptedHttp, answer, scripted_http
from workers.actors.digest_trial import try_channel

HOOK, NEW = "/hook", "/new"
_WAITS = "SELECT coalesce(not_configured, wait_until::text) FROM digest_channel"


@pytest.fixture
def endpoint() -> Any:
    with scripted_http() as server:
        server.always(HOOK, answer(200))
        server.always(NEW, answer(200))
        yield server


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(**LOOPBACK)


def run(worker: InProcess) -> None:
    worker.call(JobName.DIGEST, slot=0)


def told(endpoint: ScriptedHttp, path: str = HOOK) -> list[dict[str, Any]]:
    """The items of the last message."""
    items: list[dict[str, Any]] = endpoint.posts(path)[-1].json()["data"]["items"]
    return items


def delete(ledger: Ledger, key: str) -> None:
    with ledger.transaction() as connection:
        assert events.delete_finding(connection, make_tenant(connection, "acme")[0], key) is not None


@pytest.mark.parametrize("refusal", [404, 429])
def test_the_answer_to_an_old_address_says_nothing_about_the_new_one(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp, refusal: int
) -> None:
    make_channel(ledger, endpoint.url + HOOK)

    def change_it(_request: object) -> Any:
        with ledger.transaction() as connection:
            channel = digest_channels.find(connection, "ops")
            assert channel is not None
            setup = Setup({"endpoint": endpoint.url + NEW}, {"url": endpoint.url + NEW})
            digest_setup.change(connection, channel, setup=setup, wishes=Wishes(), operator="kim")
        return answer(refusal)

    endpoint.always(HOOK, change_it)
    post(ledger, "a")
    run(worker)
    assert scalar(ledger, _WAITS) is None
    run(worker)
    assert [item["dedup_key"] for item in told(endpoint, NEW)] == ["a"]


def test_what_waited_is_told_as_it_is_now(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(429))
    put(ledger, finding("f", severity=Severity.MEDIUM, subject="S1", details={"cvss": 5}))
    put(ledger, finding("milder", subject="S1"))
    post(ledger, event("e", severity=Severity.MEDIUM, subject="S1"))
    run(worker)
    put(ledger, finding("f", severity=Severity.CRITICAL, subject="S2", details={"cvss": 10}, kind="exploit"))
    put(ledger, finding("milder", severity=Severity.LOW, subject="S2"))
    post(ledger, event("e", severity=Severity.HIGH, subject="S2"))
    age(ledger, "61 minutes")
    run(worker)
    said = [(item["dedup_key"], item["severity"], item["subject"], item["kind"]) for item in told(endpoint)]
    assert said == [("f", "critical", "S2", "exploit"), ("e", "high", "S2", "update"), ("milder", "low", "S2", "cve")]
    assert told(endpoint)[0]["details"] == {"cvss": 10}


def test_what_may_have_been_taken_is_repeated_word_for_word(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, *[[CLOSE]] * 3)
    put(ledger, finding("worse", severity=Severity.MEDIUM), "gone")
    run(worker)
    put(ledger, finding("worse", severity=Severity.CRITICAL))
    delete(ledger, "gone")
    age(ledger, "5 minutes")
    run(worker)
    assert len(endpoint.posts(HOOK)) == 4
    data = [request.json()["data"] for request in endpoint.posts(HOOK)]  # beside it is the moment, which was moved
    assert [one for one in data if one != data[0]] == []


def test_what_is_over_when_it_is_told_is_called_so(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(429))
    put(ledger, "so", "ended", "deleted", finding("other", dedup_key="v1"))
    put(ledger, finding("one of two", dedup_key="shared"), finding("two of two", dedup_key="shared"))
    post(ledger, event("about none", finding="never handed in"), event("about so", finding="so"))
    post(ledger, event("about ended", finding="ended"), "an event")
    run(worker)
    put(ledger, finding("ended", active=False), finding("other", dedup_key="v2"))
    delete(ledger, "deleted")
    delete(ledger, str(scalar(ledger, "SELECT finding_key FROM notification WHERE dedup_key = 'shared'")))
    age(ledger, "61 minutes")
    run(worker)
    over = {item["dedup_key"] for item in told(endpoint) if item["over"]}
    assert over == {"ended", "deleted", "v1", "about ended"}
    assert len(told(endpoint)) == 10


def test_a_channel_is_never_told_of_a_kind_that_it_does_not_hear_of(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK, kinds=["update"], min_severity=Severity.MEDIUM)
    endpoint.once(HOOK, answer(429))
    put(ledger, finding("f", kind="update", severity=Severity.MEDIUM), finding("milder", kind="update"))
    post(ledger, event("e", severity=Severity.MEDIUM))
    run(worker)
    other: dict[str, Any] = {"kind": "cve", "severity": Severity.CRITICAL, "subject": "x", "details": {"of": "others"}}
    put(ledger, finding("f", **other), finding("milder", kind="update", severity=Severity.LOW))
    post(ledger, event("e", **other))
    age(ledger, "61 minutes")
    run(worker)
    said = {item["dedup_key"]: (item["kind"], item["severity"], item["subject"]) for item in told(endpoint)}
    severities = {"f": "medium", "e": "medium", "milder": "low"}
    assert said == {key: ("update", severity, f"about {key}") for key, severity in severities.items()}
    assert [item["dedup_key"] for item in told(endpoint) if item.get("details") or item["over"]] == []


def test_what_was_discarded_and_dies_again_is_a_warning_again(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    channel = make_channel(ledger, endpoint.url + HOOK, max_delivery_attempts=1)
    endpoint.once(HOOK, answer(400))
    post(ledger, "a")
    with ledger.transaction() as connection:
        notifications.detect(connection, channel)
        connection.execute("UPDATE notification SET discarded_at = now()")  # as a requeue by an old worker leaves it
    run(worker)
    assert rows(ledger)["a"].status == "dead_lettered"
    with ledger.autocommit() as connection:
        assert [each.dead_lettered for each in digest_channels.every(connection)] == [1]


def test_the_most_severe_are_told_first_and_of_those_the_longest_due(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, answer(429))
    post(ledger, *(event(f"e{n:02}", severity=Severity.INFO) for n in range(DIGEST_CAP)), event("w"))
    put(ledger, finding("worse", severity=Severity.INFO))
    post(ledger, event("raised", severity=Severity.INFO))
    run(worker)
    age(ledger, "61 minutes")
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE notification SET next_attempt_at = next_attempt_at - make_interval(secs => 9 - id % 9)"
        )
    put(ledger, finding("c", severity=Severity.CRITICAL), finding("worse", severity=Severity.CRITICAL))
    post(ledger, event("raised"))
    run(worker)
    assert [item["dedup_key"] for item in told(endpoint)][:4] == ["worse", "c", "w", "raised"]
    left = {key for key, row in rows(ledger).items() if row.status == "pending"}
    with ledger.transaction() as connection:
        due_last = connection.execute(
            "SELECT dedup_key FROM notification WHERE severity = 'info' ORDER BY id % 9 DESC, id DESC LIMIT 4"
        ).fetchall()
    assert left == {key for (key,) in due_last}


def test_a_channel_that_refuses_us_is_looked_at_every_hour(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.always(HOOK, answer(404))
    post(ledger, "a")
    run(worker)
    age(ledger, "5 days")
    run(worker)
    assert 3_500 < scalar(ledger, "SELECT extract(epoch FROM wait_until - now())::float8 FROM digest_channel") <= 3_600


def test_an_endpoint_that_is_back_is_told_all_that_waits_in_one_message(
    ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp
) -> None:
    make_channel(ledger, endpoint.url + HOOK)
    endpoint.once(HOOK, *[answer(503)] * 9, *[[CLOSE]] * 3)
    for key in ("a", "b", "c", "may have been taken"):
        post(ledger, key)
        run(worker)
    post(ledger, "first after it")
    run(worker)
    assert [item["dedup_key"] for item in told(endpoint)] == ["first after it"]
    post(ledger, "later")
    run(worker)
    bodies = [request.json()["data"]["items"] for request in endpoint.posts(HOOK)[-2:]]
    assert [[item["dedup_key"] for item in items] for items in bodies] == [
        ["may have been taken"],
        ["a", "b", "c", "later"],
    ]


def test_a_test_that_is_taken_makes_what_waits_due(ledger: Ledger, worker: InProcess, endpoint: ScriptedHttp) -> None:
    channel = make_channel(ledger, endpoint.url + HOOK)
    make_channel(ledger, endpoint.url + NEW, name="other")
    for path in (HOOK, NEW):
        endpoint.once(path, *[answer(503)] * 3)
    post(ledger, "a")
    run(worker)
    assert try_channel(worker.runtime, worker.jobs, channel)["accepted"]
    run(worker)
    assert (rows(ledger)["a"].status, rows(ledger, channel="other")["a"].status) == ("sent", "retrying")
