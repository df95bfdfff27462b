"""Calls to digest endpoints over real sockets: what each kind of channel is sent, and whom none of them reaches."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from shared.domain.digests import ChannelType, Digest, Item, Severity
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Throttled,
    Transient,
)
from tests.support.digests import SECRET
from tests.support.scripted_http import CERTIFICATE, CLOSE, HANG, ScriptedHttp, answer, free_port, scripted_http
from tests.support.waiting import wait_until
from workers.providers.digest import guard
from workers.providers.digest.caller import Answered, Caller
from workers.providers.digest.requests import DigestCall, scrub

NOW = datetime(2026, 11, 30, tzinfo=UTC)
DIGEST = Digest(
    UUID("018f0000-0000-7000-8000-000000000001"),
    "ops",
    NOW,
    [Item(1, "k", "update", "nginx 1.3 is out", Severity.CRITICAL, None, None, NOW, 0, NOW)],
)


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        yield server


def call(
    type_: ChannelType,
    *,
    private: str = "127.0.0.1",
    timeout_ms: int = 5_000,
    ca_file: str | None = None,
    **secret: str,
) -> Answered:
    caller = Caller(timeout_ms=timeout_ms, ca_file=ca_file, private={private})
    try:
        ((_, answered),) = list(caller.send([DigestCall(type_, secret, DIGEST)], pause=lambda _: None))
    finally:
        caller.close()
    return answered


def webhook(url: str, **more: object) -> Answered:
    return call(ChannelType.WEBHOOK, url=url, signing_secret=SECRET, **more)  # type: ignore[arg-type]


def test_ntfy_takes_json_at_its_root(server: ScriptedHttp) -> None:
    server.always("/", answer(200, {"id": "x"}))
    assert call(ChannelType.NTFY, url=f"{server.url}/alerts", token="tk_1").outcome == Accepted(None)
    (request,) = server.posts("/")
    assert request.headers["authorization"] == "Bearer tk_1"
    body = request.json()
    assert (body["topic"], body["priority"]) == ("alerts", 5)
    assert "[critical] update: nginx 1.3 is out" in body["message"]


def test_gotify_takes_a_message_under_its_token(server: ScriptedHttp) -> None:
    server.always("/sub/message", answer(200, {"id": 1}))
    assert call(ChannelType.GOTIFY, url=f"{server.url}/sub/", token="A.b").outcome == Accepted(None)
    (request,) = server.posts("/sub/message")
    assert request.headers["x-gotify-key"] == "A.b"
    assert request.json()["priority"] == 9


def test_slack_and_teams_take_their_documents(server: ScriptedHttp) -> None:
    server.always("/services/x", answer(200, b"ok"))
    assert call(ChannelType.SLACK, url=f"{server.url}/services/x").outcome == Accepted(None)
    assert server.posts("/services/x")[0].json()["blocks"][1]["text"]["text"] == "[critical] update: nginx 1.3 is out"
    server.always("/flow", answer(202))
    assert call(ChannelType.TEAMS, url=f"{server.url}/flow?sig=x").outcome == Accepted(None)
    assert server.posts("/flow")[0].json()["attachments"][0]["content"]["type"] == "AdaptiveCard"


@pytest.mark.parametrize("type_", [ChannelType.SLACK, ChannelType.TEAMS])
def test_a_channel_that_knows_no_ids_is_called_once(server: ScriptedHttp, type_: ChannelType) -> None:
    for step, kind in ((answer(500), Transient), ([CLOSE], Ambiguous), (answer(504), Ambiguous)):
        server.once("/x", step)
        assert isinstance(call(type_, url=f"{server.url}/x").outcome, kind)
    assert len(server.posts("/x")) == 3


@pytest.mark.parametrize("type_", [ChannelType.NTFY, ChannelType.GOTIFY, ChannelType.SLACK, ChannelType.TEAMS])
def test_what_surely_did_not_leave_is_tried_again_on_every_channel(type_: ChannelType) -> None:
    answered = call(type_, url=f"http://127.0.0.1:{free_port()}/x", token="token", timeout_ms=60_000)
    assert isinstance(answered.outcome, Transient)
    assert answered.tries == 3


def test_an_address_that_is_refused_is_not_tried_again(server: ScriptedHttp) -> None:
    answered = call(ChannelType.SLACK, url=f"{server.url}/x", private="hooks.internal")
    assert (type(answered.outcome), answered.tries) == (Configuration, 1)


def test_a_webhook_that_hangs_is_tried_again_within_its_time_and_is_then_unsure(server: ScriptedHttp) -> None:
    server.always("/x", [HANG])
    answered = webhook(f"{server.url}/x", timeout_ms=3_000)
    assert isinstance(answered.outcome, Ambiguous)
    assert answered.tries >= 2
    assert len({request.headers["webhook-id"] for request in server.posts("/x")}) == 1


def test_a_hang_and_then_a_refusal_is_unsure_all_the_same(server: ScriptedHttp) -> None:
    server.once("/x", [CLOSE], answer(400))
    assert isinstance(webhook(f"{server.url}/x").outcome, Ambiguous)
    server.once("/x", [CLOSE], answer(200))
    assert webhook(f"{server.url}/x").outcome == Accepted(None)


def test_a_gateway_that_gave_up_proves_nothing(server: ScriptedHttp) -> None:
    server.always("/x", answer(502))
    assert isinstance(webhook(f"{server.url}/x").outcome, Ambiguous)


def test_a_process_that_stood_still_beyond_its_time_does_not_try_again(server: ScriptedHttp) -> None:
    server.always("/hook", answer(503))
    caller = Caller(timeout_ms=1_500, ca_file=None, private={"127.0.0.1"})
    hook = DigestCall(ChannelType.WEBHOOK, {"url": server.url + "/hook", "signing_secret": SECRET}, DIGEST)
    until = time.monotonic() + 1.6
    try:
        ((_, answered),) = list(
            caller.send([hook], pause=lambda _: wait_until(lambda: time.monotonic() > until, timeout=10))
        )
    finally:
        caller.close()
    assert (type(answered.outcome), answered.tries) == (Transient, 1)
    assert len(server.posts("/hook")) == 1


def test_what_may_not_start_is_not_called(server: ScriptedHttp) -> None:
    server.always("/hook", answer(200))
    caller = Caller(timeout_ms=5_000, ca_file=None, private={"127.0.0.1"})
    hook = DigestCall(ChannelType.SLACK, {"url": server.url + "/hook"}, DIGEST)
    try:
        answers = dict(caller.send([hook, hook], pause=lambda _: None, may_start=lambda index: index == 1))
    finally:
        caller.close()
    assert [type(answers[index].outcome) for index in range(2)] == [NotAttempted, Accepted]
    assert len(server.posts("/hook")) == 1


def test_being_told_to_wait_is_heeded_at_once(server: ScriptedHttp) -> None:
    server.always("/x", answer(429, None, {"Retry-After": "7"}))
    outcome = webhook(f"{server.url}/x").outcome
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_s == 7
    server.always("/x", answer(503, None, {"Retry-After": "7"}))
    assert isinstance(webhook(f"{server.url}/x").outcome, Transient)
    assert len(server.posts("/x")) == 2


def test_a_redirect_is_not_followed(server: ScriptedHttp) -> None:
    with scripted_http() as elsewhere:
        server.always("/x", answer(307, None, {"Location": f"{elsewhere.url}/secret"}))
        outcome = webhook(f"{server.url}/x").outcome
        assert isinstance(outcome, Configuration)
        assert elsewhere.received == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
def test_an_address_that_is_not_public_is_refused_however_it_is_written(server: ScriptedHttp, host: str) -> None:
    outcome = webhook(f"http://{host}:{server.port}/x", private="hooks.internal").outcome
    assert isinstance(outcome, Configuration)
    assert outcome.code == "address_refused"
    assert server.connections == 0


def test_a_name_is_judged_by_what_it_resolves_to_and_by_nothing_else(server: ScriptedHttp) -> None:
    # The one name that libcurl resolves by itself, on every machine: to loopback, and not written as an address.
    outcome = webhook(f"http://localhost:{server.port}/x", private="another.example").outcome
    assert isinstance(outcome, Configuration)
    assert server.connections == 0


def test_a_digest_taken_at_a_public_address_is_taken_though_another_was_refused(
    server: ScriptedHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # libcurl gives this name two addresses, ::1 first; no test can reach one that is public, so one stands for it.
    asked: list[str] = []
    monkeypatch.setattr(guard, "is_public", lambda address: asked.append(address) or address == "127.0.0.1")
    server.once("/x", answer(200), answer(400), [CLOSE])
    url = f"http://localhost:{server.port}/x"
    kinds = [type(call(ChannelType.SLACK, private="another.example", url=url).outcome) for _ in range(3)]
    if "::1" not in asked:
        pytest.skip("this machine has no IPv6: the name has one address")
    assert kinds == [Accepted, Permanent, Ambiguous]


def test_a_host_that_is_named_may_be_private(server: ScriptedHttp) -> None:
    server.always("/x", answer(200))
    assert webhook(f"http://localhost:{server.port}/x", private="localhost").outcome == Accepted(None)


def test_one_host_is_allowed_and_another_refused_in_the_same_run(server: ScriptedHttp) -> None:
    server.always("/x", answer(200))
    caller = Caller(timeout_ms=5_000, ca_file=None, private={"localhost"})
    calls = [
        DigestCall(ChannelType.SLACK, {"url": f"http://{host}:{server.port}/x"}, DIGEST)
        for host in ("localhost", "127.0.0.1") * 5
    ]
    found = dict(caller.send(calls, pause=lambda _: None))
    caller.close()
    outcomes: list[Outcome] = [found[index].outcome for index in range(10)]
    assert [type(outcome) for outcome in outcomes] == [Accepted, Configuration] * 5


def test_a_certificate_that_is_not_trusted_is_no_fault_of_the_message() -> None:
    with scripted_http(tls=True) as server:
        server.always("/x", answer(200))
        outcome = webhook(f"{server.url}/x").outcome
        assert isinstance(outcome, Configuration)
        assert outcome.code == "tls_verify"
        assert webhook(f"{server.url}/x", ca_file=str(CERTIFICATE)).outcome == Accepted(None)


def test_nobody_there_is_surely_not_taken() -> None:
    outcome = webhook(f"http://127.0.0.1:{free_port()}/x", timeout_ms=2_000).outcome
    assert isinstance(outcome, Transient)


def test_a_process_that_must_stop_cuts_its_calls(server: ScriptedHttp) -> None:
    server.always("/x", [HANG])
    caller = Caller(timeout_ms=30_000, ca_file=None, private={"127.0.0.1"})
    calls = [DigestCall(ChannelType.SLACK, {"url": f"{server.url}/x"}, DIGEST)]
    ((_, answered),) = list(caller.send(calls, pause=lambda _: None, must_cut=lambda: bool(server.received)))
    caller.close()
    assert isinstance(answered.outcome, Ambiguous | NotAttempted)


def test_secrets_are_taken_out_of_what_an_endpoint_repeats() -> None:
    secret = {
        "url": "https://hooks.slack.com/services/T000/B000/XXXXXXXX?sig=abcdef",
        "token": 'quo"ted-token',
        "auth_header": "Authorization: Bearer s3cret-value",
    }
    said = json.dumps({"path": "/services/T000/B000/XXXXXXXX", "sig": "sig=abcdef", "token": 'quo"ted-token'})
    cleaned = scrub(f"{said} s3cret-value {secret['url']}", secret)
    for part in ("XXXXXXXX", "abcdef", "ted-token", "s3cret"):
        assert part not in cleaned


@pytest.mark.parametrize(
    ("secret", "said", "left"),
    [
        ({"auth_header": "X-Api-Key:s3cretvalue99"}, "no key s3cretvalue99", "no key ***"),
        (
            {"auth_header": "Authorization: Token token=abcd1234, app=ops"},
            "Token abcd1234 of ops?",
            "Token *** of ops?",
        ),
        ({"auth_header": 'Authorization: Digest a="abcd1234";b=c'}, '{"a":"abcd1234"}', '{"a":"***"}'),
        ({"auth_header": "Authorization: Basic dXNlcjpwYXNz=="}, "Basic dXNlcjpwYXNz", "Basic ***"),
        ({"url": "https://example.com/x?a=1&key=s3cret%2Fpart"}, "bad s3cret/part", "bad ***"),
    ],
)
def test_parts_of_a_secret_are_taken_out_and_the_words_around_them_stay(
    secret: dict[str, str], said: str, left: str
) -> None:
    assert scrub(said, secret) == left
