"""CHES, row by row: each answer it or its gateway can give, and what the message's outcome must be."""

import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Throttled,
    Transient,
)
from tests.integration.providers.messages import email_message, send_all
from tests.support.scripted_http import (
    CLOSE,
    HANG,
    RESET,
    Pause,
    Received,
    ScriptedHttp,
    Step,
    answer,
    form,
    free_port,
    scripted_http,
)
from tests.support.waiting import wait_until
from workers.providers.ches import ChesProvider
from workers.providers.ches_token import ChesConfig

TOKEN = {"access_token": "token-1", "expires_in": 300, "token_type": "Bearer"}
TAKEN = {"txId": "tx-1", "messages": [{"msgId": "msg-1", "to": ["person@example.com"]}]}


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        server.always("/token", answer(200, TOKEN))
        server.always("/api/v1/email", answer(201, TAKEN))
        yield server


@pytest.fixture
def config(server: ScriptedHttp) -> ChesConfig:
    return ChesConfig(
        base_url=server.url + "/api/v1",
        token_url=server.url + "/token",
        client_id=f"client-{uuid4()}",  # tokens outlive a test: they are kept by configuration for the process
        client_secret="s3cret",
        timeout_ms=600,
        connect_timeout_ms=300,
    )


@pytest.fixture
def provider(config: ChesConfig) -> Iterator[ChesProvider]:
    provider = ChesProvider(config)
    yield provider
    provider.close()


def send_one(provider: ChesProvider) -> Outcome:
    return send_all(provider, [email_message()])[0]


def problem(status: int, detail: str, **more: object) -> Step:
    return answer(status, {"type": "about:blank", "title": "Title", "status": status, "detail": detail, **more})


def refused_fields(*messages: str) -> Step:
    errors = [{"value": "person@example.com", "message": m} for m in messages]
    return problem(422, "Validation failed", errors=errors)


def test_a_message_is_one_post_with_our_key_as_its_tag(
    server: ScriptedHttp, config: ChesConfig, provider: ChesProvider
) -> None:
    both = email_message(text="plain", html="<p>rich</p>", subject="Été")
    plain = email_message("other@example.com")
    assert send_all(provider, [both, plain]) == [Accepted("msg-1"), Accepted("msg-1")]
    bodies = {r.json()["tag"]: r.json() for r in server.posts("/api/v1/email")}
    assert bodies[str(both.key)] == {
        "from": "Desk <desk@example.com>",
        "to": ["person@example.com"],
        "subject": "Été",
        "bodyType": "html",
        "body": "<p>rich</p>",
        "encoding": "utf-8",
        "priority": "normal",
        "tag": str(both.key),
    }
    assert (bodies[str(plain.key)]["bodyType"], bodies[str(plain.key)]["body"]) == ("text", "Hello there")
    assert {r.headers["authorization"] for r in server.posts("/api/v1/email")} == {"Bearer token-1"}
    (token_request,) = server.posts("/token")
    pair = b64decode(token_request.headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == f"{config.client_id}:s3cret"
    assert form(token_request) == {"grant_type": "client_credentials"}


def test_the_token_is_shared_by_the_instances_of_the_process(server: ScriptedHttp, config: ChesConfig) -> None:
    for _ in range(3):
        provider = ChesProvider(config)
        assert send_one(provider) == Accepted("msg-1")
        provider.close()
    assert len(server.posts("/token")) == 1


def test_a_short_lived_token_is_fetched_anew_before_it_ends(server: ScriptedHttp, provider: ChesProvider) -> None:
    server.always("/token", answer(200, {**TOKEN, "expires_in": 0}))
    send_one(provider)
    send_one(provider)
    assert len(server.posts("/token")) == 2


CHES_ANSWERS: list[tuple[str, Step, Outcome]] = [
    ("201 without a readable body", answer(201, b"<html>"), Accepted(None)),
    ("201 of another shape", answer(201, {"messages": []}), Accepted(None)),
    ("201 as a list", answer(201, [1]), Accepted(None)),
    ("400 no azp", problem(400, "Could not determine Authorized Party"), Configuration(Scope.PROVIDER, "ches_no_azp")),
    ("400 otherwise", problem(400, "Bad"), Permanent(Scope.MESSAGE, "ches_400")),
    ("402", answer(402), Configuration(Scope.PROVIDER, "ches_402")),
    ("403", problem(403, "No"), Configuration(Scope.PROVIDER, "ches_403")),
    ("404", answer(404), Configuration(Scope.PROVIDER, "ches_404")),
    ("405", answer(405), Configuration(Scope.PROVIDER, "ches_405")),
    ("408", answer(408), Transient(Scope.PROVIDER, "ches_408")),
    ("413", answer(413), Permanent(Scope.MESSAGE, "ches_413")),
    ("422 to", refused_fields("Invalid value `to`."), Permanent(Scope.RECIPIENT, "ches_422_to")),
    ("422 cc", refused_fields("Invalid value `cc`."), Permanent(Scope.RECIPIENT, "ches_422_cc")),
    ("422 bcc", refused_fields("Invalid value `bcc`."), Permanent(Scope.RECIPIENT, "ches_422_bcc")),
    ("422 from", refused_fields("Invalid value `from`."), Configuration(Scope.SENDER, "ches_422_from")),
    (
        "422 sender rule",
        refused_fields("'from'. 'a@example.com' is not permitted"),
        Configuration(Scope.SENDER, "ches_422_from"),
    ),
    ("422 subject", refused_fields("Invalid value `subject`."), Permanent(Scope.MESSAGE, "ches_422_subject")),
    ("422 body", refused_fields("Invalid value `body`."), Permanent(Scope.MESSAGE, "ches_422_body")),
    ("422 bodyType", refused_fields("Invalid value `bodyType`."), Permanent(Scope.MESSAGE, "ches_422_bodytype")),
    ("422 encoding", refused_fields("Invalid value `encoding`."), Permanent(Scope.MESSAGE, "ches_422_encoding")),
    ("422 priority", refused_fields("Invalid value `priority`."), Permanent(Scope.MESSAGE, "ches_422_priority")),
    (
        "422 attachments",
        refused_fields("Invalid value `attachments`."),
        Permanent(Scope.MESSAGE, "ches_422_attachments"),
    ),
    ("422 tag", refused_fields("Invalid value `tag`."), Configuration(Scope.PROVIDER, "ches_422_tag")),
    ("422 delayTS", refused_fields("Invalid value `delayTS`."), Configuration(Scope.PROVIDER, "ches_422_delayts")),
    (
        "422 to and from",
        refused_fields("Invalid value `to`.", "Invalid value `from`."),
        Configuration(Scope.SENDER, "ches_422_from"),
    ),
    ("422 unknown", refused_fields("what?"), Permanent(Scope.MESSAGE, "ches_422")),
    ("429", answer(429, headers={"Retry-After": "7"}), Throttled("ches_429", retry_after_s=7.0)),
    (
        "429 gateway's own header",
        answer(429, headers={"RateLimit-Reset": "12"}),
        Throttled("ches_429", retry_after_s=12.0),
    ),
    ("429 without a wait", answer(429), Throttled("ches_429")),
    ("500 too large", problem(500, "request entity too large"), Permanent(Scope.MESSAGE, "ches_body_refused")),
    (
        "500 JSON",
        problem(500, "Unexpected token x in JSON at position 3"),
        Permanent(Scope.MESSAGE, "ches_body_refused"),
    ),
    ("500 of CHES", problem(500, "Error sending email. Foo"), Transient(Scope.PROVIDER, "ches_500")),
    ("500 of somebody else", answer(500, b"<html>"), Ambiguous("ches_500", provider_failed=True)),
    (
        "500 of the gateway",
        answer(500, {"message": "An unexpected error occurred"}),
        Ambiguous("ches_500", provider_failed=True),
    ),
    ("501", answer(501), Configuration(Scope.PROVIDER, "ches_501")),
    ("502", answer(502), Ambiguous("ches_502", provider_failed=True)),
    ("503 not ready", answer(503, {"details": "Server is not ready"}), Transient(Scope.PROVIDER, "ches_503")),
    ("503 of the router", answer(503, b"<html>"), Transient(Scope.PROVIDER, "ches_503")),
    ("504", answer(504), Ambiguous("ches_504", provider_failed=True)),
    ("520", answer(520), Ambiguous("ches_520", provider_failed=True)),
    ("hang", [HANG], Ambiguous("timeout", timed_out=True, provider_failed=True)),
    ("reset", [RESET], Ambiguous("reused_connection_lost", provider_failed=True)),
    ("close after reading all", [CLOSE], Ambiguous("reused_connection_lost", provider_failed=True)),
    ("garbage", [b"%%%\r\n\r\n", CLOSE], Ambiguous("unreadable_answer", provider_failed=True)),
    ("redirect", answer(302, headers={"Location": "/x"}), Configuration(Scope.PROVIDER, "ches_302")),
]


def bare(outcome: Outcome) -> Outcome:
    """Leave out what a table of expectations need not repeat."""
    match outcome:
        case Ambiguous():
            return replace(outcome, detail="", evidence={})
        case Transient() | Throttled() | Permanent() | Configuration():
            return replace(outcome, detail="")
        case _:
            return outcome


@pytest.mark.parametrize(("step", "expected"), [row[1:] for row in CHES_ANSWERS], ids=[row[0] for row in CHES_ANSWERS])
def test_each_answer_has_its_outcome_and_costs_one_post(
    server: ScriptedHttp, provider: ChesProvider, step: Step, expected: Outcome
) -> None:
    send_one(provider)  # so that the call under test goes over a kept connection, as most do
    server.once("/api/v1/email", step)
    message = email_message()
    assert bare(send_all(provider, [message])[0]) == expected
    assert server.count_by(lambda r: r.json()["tag"], "/api/v1/email")[str(message.key)] == 1


def test_an_answer_that_names_the_address_does_not_bring_it_into_the_outcome(
    server: ScriptedHttp, provider: ChesProvider
) -> None:
    server.once("/api/v1/email", refused_fields("Invalid value `to`."))
    assert "person@example.com" not in repr(send_one(provider))


def test_a_refused_connection_is_transient(server: ScriptedHttp, config: ChesConfig) -> None:
    provider = ChesProvider(replace(config, base_url=f"http://127.0.0.1:{free_port()}/api/v1"))
    outcome = send_one(provider)
    provider.close()
    assert isinstance(outcome, Transient)
    assert outcome.scope is Scope.PROVIDER


def test_a_401_costs_one_fresh_token_and_one_more_post_for_each_message(
    server: ScriptedHttp, provider: ChesProvider
) -> None:
    def only_the_second_token(request: Received) -> Step:
        fresh = request.headers["authorization"] == "Bearer token-2"
        return answer(201, TAKEN) if fresh else problem(401, "Access token is missing or invalid")

    server.once("/token", answer(200, TOKEN))
    server.always("/token", answer(200, {**TOKEN, "access_token": "token-2"}))
    server.always("/api/v1/email", only_the_second_token)
    messages = [email_message(f"p{n}@example.com") for n in range(20)]
    assert send_all(provider, messages) == [Accepted("msg-1")] * 20
    assert len(server.posts("/token")) == 2
    assert set(server.count_by(lambda r: r.json()["tag"], "/api/v1/email").values()) == {2}


def test_a_second_401_is_configuration(server: ScriptedHttp, provider: ChesProvider) -> None:
    server.always("/api/v1/email", problem(401, "Access token is missing or invalid"))
    assert bare(send_one(provider)) == Configuration(Scope.PROVIDER, "ches_401")
    assert len(server.posts("/api/v1/email")) == 2


TOKEN_ANSWERS: list[tuple[str, Step, Outcome]] = [
    (
        "invalid client",
        answer(401, {"error": "invalid_client"}),
        Configuration(Scope.PROVIDER, "ches_token_invalid_client"),
    ),
    (
        "unauthorized client",
        answer(400, {"error": "unauthorized_client"}),
        Configuration(Scope.PROVIDER, "ches_token_unauthorized_client"),
    ),
    ("wrong realm", answer(404), Configuration(Scope.PROVIDER, "ches_token_404")),
    ("500", answer(500), Transient(Scope.PROVIDER, "ches_token_500")),
    ("502", answer(502), Transient(Scope.PROVIDER, "ches_token_502")),
    ("503", answer(503), Transient(Scope.PROVIDER, "ches_token_503")),
    ("429", answer(429, headers={"Retry-After": "3"}), Throttled("ches_token_429", retry_after_s=3.0)),
    ("hang", [HANG], Transient(Scope.PROVIDER, "ches_token_unreachable", timed_out=True)),
    ("reset", [RESET], Transient(Scope.PROVIDER, "ches_token_unreachable")),
    ("200 without a token", answer(200, {}), Transient(Scope.PROVIDER, "ches_token_200")),
    (
        "token that would add a header",
        answer(200, {"access_token": "a\r\nX-Evil: 1"}),
        Transient(Scope.PROVIDER, "ches_token_200"),
    ),
]


@pytest.mark.parametrize(
    ("step", "expected"), [row[1:] for row in TOKEN_ANSWERS], ids=[row[0] for row in TOKEN_ANSWERS]
)
def test_a_lost_token_is_never_ambiguous_and_nothing_is_posted(
    server: ScriptedHttp, provider: ChesProvider, step: Step, expected: Outcome
) -> None:
    server.always("/token", step)
    assert bare(send_one(provider)) == expected
    assert server.posts("/api/v1/email") == []


def test_one_slow_message_does_not_hold_back_the_answers_of_the_others(
    server: ScriptedHttp, provider: ChesProvider
) -> None:
    def slow(request: Received) -> Step:
        return [Pause(0.3), *answer(201, TAKEN)] if request.json()["to"] == ["slow@example.com"] else answer(201, TAKEN)

    server.always("/api/v1/email", slow)
    messages = [email_message("slow@example.com"), email_message(), email_message()]
    order = [one[0] for one in provider.send(messages) if one is not None]
    assert order[-1] == 0
    assert sorted(order) == [0, 1, 2]


def test_closing_the_answers_cuts_the_calls_and_the_adapter_can_be_used_again(
    server: ScriptedHttp, provider: ChesProvider
) -> None:
    server.once("/api/v1/email", [HANG], [HANG])
    with closing(provider.send([email_message(), email_message()])) as answers:  # type: ignore[type-var]  # a generator
        assert next(answers) is None
    assert send_one(provider) == Accepted("msg-1")
    assert len(server.posts("/api/v1/email")) == 3


def test_a_cut_while_the_token_is_waited_for_leaves_every_message_unattempted(
    server: ScriptedHttp, config: ChesConfig
) -> None:
    server.once("/token", [HANG])
    patient = replace(config, timeout_ms=20_000)
    first, second = ChesProvider(patient), ChesProvider(patient)
    fetching, waiting = (each.send([email_message(), email_message()]) for each in (first, second))
    assert next(iter(fetching)) is None
    assert next(iter(waiting)) is None
    for provider, answers in ((second, waiting), (first, fetching)):
        provider.cut()
        assert [type(answer[1]) for answer in answers if answer is not None] == [NotAttempted, NotAttempted]
        provider.close()
    assert server.posts("/api/v1/email") == []
    assert send_one(ChesProvider(patient)) == Accepted("msg-1")


def test_a_call_whose_time_was_over_before_there_was_a_token_is_not_begun(
    server: ScriptedHttp, config: ChesConfig
) -> None:
    server.once("/token", [Pause(0.2), *answer(200, TOKEN)])
    brief = replace(config, timeout_ms=3_000)
    first, second = ChesProvider(brief), ChesProvider(brief)
    fetching, waiting = (iter(each.send([email_message()])) for each in (first, second))
    assert next(fetching) is None
    began = time.monotonic()
    assert next(waiting) is None
    assert [answer for answer in fetching if answer is not None] == [(0, Accepted("msg-1"))]
    wait_until(lambda: time.monotonic() > began + 3.1)
    [(_, outcome)] = [answer for answer in waiting if answer is not None]
    assert isinstance(outcome, NotAttempted)
    assert len(server.posts("/api/v1/email")) == 1
    first.close()
    second.close()


def test_the_secret_is_not_in_the_configurations_repr(config: ChesConfig) -> None:
    assert "s3cret" not in repr(config)
