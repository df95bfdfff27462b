"""Azure Communication Services SMS: grouping, signature, repeatability, and mixed results inside one 202."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest

from shared.domain.outcome import Accepted, Ambiguous, Configuration, Outcome, Permanent, Scope, Throttled, Transient
from tests.integration.providers.messages import send_all, sms_message
from tests.support.scripted_http import (
    CLOSE,
    HANG,
    RESET,
    Received,
    ScriptedHttp,
    Step,
    answer,
    free_port,
    scripted_http,
)
from workers.providers.acs import AcsConfig, AcsProvider

KEY = base64.b64encode(b"0123456789abcdef").decode()


def taken(request: Received) -> Step:
    items = [
        {"to": one["to"], "messageId": f"m{one['to'][-3:]}", "httpStatusCode": 202, "successful": True}
        for one in reversed(request.json()["smsRecipients"])
    ]
    return answer(202, {"value": items})


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        server.always("/sms", taken)
        yield server


@pytest.fixture
def config(server: ScriptedHttp) -> AcsConfig:
    return AcsConfig(endpoint=server.url, access_key=KEY, sender="+18335550100", timeout_ms=500, connect_timeout_ms=300)


@pytest.fixture
def provider(config: AcsConfig) -> Iterator[AcsProvider]:
    provider = AcsProvider(config)
    yield provider
    provider.close()


def test_equal_texts_go_together_and_results_are_matched_by_number(server: ScriptedHttp, provider: AcsProvider) -> None:
    messages = [sms_message(f"+160455501{n:02}") for n in range(5)]
    assert send_all(provider, messages) == [Accepted(f"m1{n:02}") for n in range(5)]
    (request,) = server.received
    body = request.json()
    assert (body["from"], body["message"]) == ("+18335550100", "Hello there")
    assert [r["repeatabilityRequestId"] for r in body["smsRecipients"]] == [str(m.key) for m in messages]


def test_a_request_has_one_text_one_sender_no_number_twice_and_at_most_100(
    server: ScriptedHttp, provider: AcsProvider
) -> None:
    messages = [
        *(sms_message(f"+16045550{n:03}") for n in range(150)),
        sms_message("+16045550000"),
        sms_message("+16045550001", text="Another"),
        sms_message("+16045550002", sender="+18335550199"),
    ]
    assert all(isinstance(one, Accepted) for one in send_all(provider, messages))
    sizes = []
    for request in server.received:
        numbers = [r["to"] for r in request.json()["smsRecipients"]]
        assert len(numbers) == len(set(numbers)) <= 100
        sizes.append(len(numbers))
    assert sum(sizes) == 153
    assert sorted(sizes) == [1, 1, 51, 100]


def test_the_tag_of_a_request_tells_the_epoch_of_its_rows(server: ScriptedHttp, provider: AcsProvider) -> None:
    first = sms_message("+16045550101")
    send_all(provider, [first, replace(sms_message("+16045550102"), epoch=2)])
    rows = f"{first.delivery_id}-{first.delivery_id.rpartition('.')[2]}"
    assert sorted(request.json()["smsSendOptions"]["tag"] for request in server.received) == [rows, f"{rows}.2"]


def test_each_request_is_signed_over_path_date_host_and_body(server: ScriptedHttp, provider: AcsProvider) -> None:
    send_all(provider, [sms_message()])
    (request,) = server.received
    digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
    date, host = request.headers["x-ms-date"], request.headers["host"]
    text = f"POST\n{request.path}\n{date};{host};{digest}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), "sha256").digest()).decode()
    assert request.headers["x-ms-content-sha256"] == digest
    assert request.headers["authorization"] == (
        f"HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature={signature}"
    )
    assert host == server.url.removeprefix("http://")


def test_the_first_sent_time_is_the_ledgers_so_that_a_repeat_of_any_worker_carries_the_same(
    server: ScriptedHttp, provider: AcsProvider
) -> None:
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    send_all(provider, [sms_message("+16045550101", first_attempt_at=began)])
    [recipient] = server.received[0].json()["smsRecipients"]
    assert parsedate_to_datetime(recipient["repeatabilityFirstSent"]) == began


ITEMS: list[tuple[str, dict[str, object], Outcome]] = [
    ("202", {"httpStatusCode": 202, "messageId": "m1", "successful": True}, Accepted("m1")),
    (
        "400 number",
        {"httpStatusCode": 400, "errorMessage": "Invalid To phone number format."},
        Permanent(Scope.RECIPIENT, "acs_item_400", "Invalid To phone number format."),
    ),
    (
        "400 rejected",
        {"httpStatusCode": 400, "repeatabilityResult": "rejected"},
        Ambiguous("acs_repeatability_rejected"),
    ),
    (
        "412 rejected",
        {"httpStatusCode": 412, "repeatabilityResult": "rejected"},
        Ambiguous("acs_repeatability_rejected"),
    ),
    ("401", {"httpStatusCode": 401}, Configuration(Scope.PROVIDER, "acs_item_401")),
    ("408", {"httpStatusCode": 408}, Transient(Scope.PROVIDER, "acs_item_408")),
    ("409", {"httpStatusCode": 409}, Throttled("acs_item_409", retry_after_s=10.0, scope=Scope.RECIPIENT)),
    ("429", {"httpStatusCode": 429}, Throttled("acs_item_429")),
    ("500", {"httpStatusCode": 500}, Transient(Scope.PROVIDER, "acs_item_500")),
    ("503", {"httpStatusCode": 503, "errorMessage": "busy"}, Transient(Scope.PROVIDER, "acs_item_503", "busy")),
    ("no status", {}, Ambiguous("acs_item_unreadable")),
]


@pytest.mark.parametrize(("item", "expected"), [row[1:] for row in ITEMS], ids=[row[0] for row in ITEMS])
def test_each_result_inside_a_202_stands_alone(
    server: ScriptedHttp, provider: AcsProvider, item: dict[str, object], expected: Outcome
) -> None:
    good = {"to": "+16045550109", "messageId": "good", "httpStatusCode": 202, "successful": True}
    server.always("/sms", answer(202, {"value": [good, {"to": "+16045550101", **item}]}))
    outcome, other = send_all(provider, [sms_message("+16045550101"), sms_message("+16045550109")])
    assert (replace(outcome, evidence={}) if isinstance(outcome, Ambiguous) else outcome) == expected
    assert other == Accepted("good")


def test_a_recipient_the_answer_leaves_out_is_ambiguous(server: ScriptedHttp, provider: AcsProvider) -> None:
    server.always("/sms", answer(202, {"value": []}))
    outcome = send_all(provider, [sms_message()])[0]
    assert isinstance(outcome, Ambiguous)
    assert outcome.code == "acs_item_missing"


REQUESTS: list[tuple[str, Step, type, Scope | None]] = [
    ("400", answer(400, {"error": {"code": "BadRequest", "message": "No"}}), Permanent, Scope.MESSAGE),
    ("401", answer(401), Configuration, Scope.PROVIDER),
    ("403", answer(403), Configuration, Scope.PROVIDER),
    ("404", answer(404), Configuration, Scope.PROVIDER),
    ("409", answer(409), Throttled, Scope.RECIPIENT),
    ("412", answer(412), Ambiguous, None),
    ("429", answer(429, headers={"Retry-After": "9"}), Throttled, Scope.PROVIDER),
    ("500", answer(500), Transient, Scope.PROVIDER),
    ("502", answer(502), Ambiguous, None),
    ("503", answer(503), Transient, Scope.PROVIDER),
    ("504", answer(504), Ambiguous, None),
    ("unreadable 202", answer(202, b"<html>"), Ambiguous, None),
    ("202 with its body lost", [b"HTTP/1.1 202 Accepted\r\nContent-Length: 50\r\n\r\n{", CLOSE], Ambiguous, None),
    ("hang", [HANG], Ambiguous, None),
    ("reset", [RESET], Ambiguous, None),
    ("close", [CLOSE], Ambiguous, None),
]


@pytest.mark.parametrize(("step", "kind", "scope"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_a_request_that_fails_as_a_whole_gives_all_its_recipients_one_outcome_object(
    server: ScriptedHttp, provider: AcsProvider, step: Step, kind: type, scope: Scope | None
) -> None:
    send_all(provider, [sms_message()])
    server.once("/sms", step)
    outcomes = send_all(provider, [sms_message(f"+160455501{n:02}") for n in range(10)])
    assert isinstance(outcomes[0], kind)
    assert all(one is outcomes[0] for one in outcomes)
    assert getattr(outcomes[0], "scope", None) is scope
    assert len(server.received) == 2


def test_equal_failures_inside_one_answer_are_one_object_too(server: ScriptedHttp, provider: AcsProvider) -> None:
    items = [{"to": f"+160455501{n:02}", "httpStatusCode": 503} for n in range(10)]
    server.always("/sms", answer(202, {"value": items}))
    outcomes = send_all(provider, [sms_message(f"+160455501{n:02}") for n in range(10)])
    assert len({id(one) for one in outcomes}) == 1


def test_a_refused_connection_is_transient(config: AcsConfig) -> None:
    provider = AcsProvider(replace(config, endpoint=f"http://127.0.0.1:{free_port()}"))
    assert isinstance(send_all(provider, [sms_message()])[0], Transient)
    provider.close()
