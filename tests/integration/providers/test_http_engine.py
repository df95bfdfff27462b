"""What the HTTP engine does on the wire, and what a failed exchange is taken to prove."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Transient,
)
from tests.support.scripted_http import (
    CERTIFICATE,
    CLOSE,
    HANG,
    RESET,
    Pause,
    Received,
    ScriptedHttp,
    Step,
    answer,
    drip,
    free_port,
    scripted_http,
)
from workers.providers import classify
from workers.providers.http import HttpLimits, HttpRequest, HttpResult
from workers.providers.http_engine import BODY_CAP, HttpEngine

LIMITS = HttpLimits(total_timeout_ms=500, connect_timeout_ms=250, ca_file=str(CERTIFICATE))


@pytest.fixture
def engine() -> Iterator[HttpEngine]:
    engine = HttpEngine(LIMITS)
    yield engine
    engine.close()


def call(engine: HttpEngine, request: HttpRequest) -> HttpResult:
    """One call and its result."""
    engine.start(0, request)
    return next(ended[1] for ended in list(engine.results()) if ended is not None)


def post(engine: HttpEngine, server: ScriptedHttp, body: bytes = b"x" * 500) -> HttpResult:
    return call(engine, HttpRequest(server.url + "/send", [], body))


def outcome_of(result: HttpResult) -> Outcome:
    if result.status == 0:
        return classify.transport_failure(result)
    return classify.status_default(result, code=f"test_{result.status}")


AFTER_THE_REQUEST_LEFT: list[tuple[str, Step, str]] = [
    ("hang", [HANG], "timeout"),
    ("close", [CLOSE], "no_answer"),
    ("reset", [RESET], "connection_lost"),
    ("garbage", [b"\x00\x01not http at all\r\n\r\n", CLOSE], "unreadable_answer"),
    ("impossible status", answer(0), "unreadable_answer"),
    ("half a status line", [b"HTTP/1.1 20", CLOSE], "no_answer"),
    ("slow drip", drip(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", every_s=0.1), "timeout"),
    ("interim answer only", [b"HTTP/1.1 103 Early Hints\r\n\r\n", HANG], "timeout"),
]


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize(
    ("step", "code"), [row[1:] for row in AFTER_THE_REQUEST_LEFT], ids=[r[0] for r in AFTER_THE_REQUEST_LEFT]
)
def test_silence_after_the_request_left_is_ambiguous(engine: HttpEngine, step: Step, code: str, tls: bool) -> None:
    with scripted_http(tls=tls) as server:
        server.always("/send", step)
        started = time.monotonic()
        outcome = outcome_of(post(engine, server))
        assert isinstance(outcome, Ambiguous)
        assert outcome.timed_out == (code == "timeout")
        if not tls:  # over TLS, libcurl reports an unexpected end where it reports an empty answer in clear
            assert outcome.code == code
        assert int(outcome.evidence["bytes_sent"]) > 500
        assert time.monotonic() - started < 1.0
        assert len(server.posts("/send")) == 1


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("step", [[CLOSE], [RESET]], ids=["close", "reset"])
def test_a_reused_connection_that_dies_before_the_answer_posts_only_once(
    engine: HttpEngine, step: Step, tls: bool
) -> None:
    with scripted_http(tls=tls) as server:
        server.once("/send", answer(201), step)
        server.always("/send", answer(201))
        assert post(engine, server).status == 201
        outcome = outcome_of(post(engine, server))
        assert isinstance(outcome, Ambiguous)
        assert outcome.code == "reused_connection_lost"
        assert [r.connection for r in server.posts("/send")] == [1, 1], (
            "the second request used the kept connection, once"
        )


def test_a_post_without_a_body_never_takes_a_kept_connection(engine: HttpEngine) -> None:
    with scripted_http() as server:
        server.once("/send", answer(201), [CLOSE])
        server.always("/send", answer(201))
        post(engine, server)
        assert isinstance(outcome_of(post(engine, server, b"")), Ambiguous)
        assert len(server.posts("/send")) == 2
        post(engine, server)
        post(engine, server)
        assert server.connections == 2, "with a body again, a kept connection is used again"


def test_a_kept_connection_closed_while_idle_is_replaced_before_anything_is_sent(engine: HttpEngine) -> None:
    with scripted_http() as server:
        server.once("/send", [*answer(201), CLOSE])
        server.always("/send", answer(201))
        assert post(engine, server).status == 201
        server.wait_until_closed()
        assert post(engine, server).status == 201
        assert [r.connection for r in server.posts("/send")] == [1, 2]


def test_a_refused_connection_is_tried_once_more_and_is_then_transient(engine: HttpEngine) -> None:
    result = call(engine, HttpRequest(f"http://127.0.0.1:{free_port()}/send", [], b"x"))
    assert outcome_of(result) == Transient(Scope.PROVIDER, "connect", result.error_text)
    assert "after 0 ms" not in result.error_text
    assert result.bytes_sent == 0


def test_a_connection_refused_the_first_time_only_goes_through() -> None:
    # The port opens between the two tries: the engine's first look at the finished call is where it opens.
    class Opening(HttpEngine):
        server: socket.socket | None = None

        def _connect_again(self, curl: object) -> bool:
            self.server = self.server or socket.create_server(("127.0.0.1", port))
            return super()._connect_again(curl)  # type: ignore[arg-type]

    port = free_port()
    engine = Opening(LIMITS)
    result = call(engine, HttpRequest(f"http://127.0.0.1:{port}/send", [], b"x"))
    assert isinstance(outcome_of(result), Ambiguous), "it connected; nobody answers there"
    engine.close()
    assert engine.server is not None
    engine.server.close()


def test_a_name_that_does_not_resolve_is_transient(engine: HttpEngine) -> None:
    outcome = outcome_of(call(engine, HttpRequest("http://nowhere.invalid/send", [], b"x")))
    assert isinstance(outcome, Transient)
    assert outcome.code == "dns"


def test_a_server_that_accepts_no_connection_is_a_connect_timeout(engine: HttpEngine) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        outcome = outcome_of(call(engine, HttpRequest(f"http://127.0.0.1:{address[1]}/send", [], b"x")))
        for filler in fillers:
            filler.close()
    assert isinstance(outcome, Transient)
    assert (outcome.code, outcome.timed_out) == ("connect_timeout", True)


def test_a_tls_handshake_that_never_ends_is_transient(engine: HttpEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        outcome = outcome_of(call(engine, HttpRequest(f"https://127.0.0.1:{silent.getsockname()[1]}/send", [], b"x")))
    assert isinstance(outcome, Transient)
    assert outcome.timed_out


def test_a_certificate_that_does_not_verify_is_configuration() -> None:
    engine = HttpEngine(HttpLimits(total_timeout_ms=500))
    with scripted_http(tls=True) as server:
        outcome = outcome_of(post(engine, server))
        assert isinstance(outcome, Configuration)
        assert (outcome.code, outcome.scope) == ("tls_verify", Scope.PROVIDER)
        assert server.received == []
    engine.close()


def test_a_server_that_cannot_speak_tls_is_transient(engine: HttpEngine) -> None:
    with scripted_http() as server:
        result = call(engine, HttpRequest(server.url.replace("http:", "https:") + "/send", [], b"x"))
    # The server waits for the end of a head that is a TLS hello, so the handshake runs into the time limit.
    assert isinstance(outcome_of(result), Transient)


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://[bad/", "file:///etc/passwd"])
def test_an_address_that_is_no_http_url_is_configuration(engine: HttpEngine, url: str) -> None:
    outcome = outcome_of(call(engine, HttpRequest(url, [], b"x")))
    assert isinstance(outcome, Configuration)
    assert outcome.code == "bad_url"


@pytest.mark.parametrize(
    "step",
    [
        [b"HTTP/1.1 201 Created\r\n", HANG],
        [b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nabc", CLOSE],
        [b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nabc", RESET],
        [b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CLOSE],
    ],
    ids=["hang", "short body", "reset in body", "bad chunks"],
)
def test_a_2xx_whose_body_is_lost_is_accepted_with_the_id_unknown(engine: HttpEngine, step: Step) -> None:
    with scripted_http() as server:
        server.always("/send", step)
        assert outcome_of(post(engine, server)) == Accepted(None)


def test_a_large_upload_refused_early_is_reported_as_413(engine: HttpEngine) -> None:
    with scripted_http(early=True) as server:
        server.always("/send", [*answer(413), Pause(0.2)])
        outcome = outcome_of(post(engine, server, b"x" * 20_000_000))
    assert isinstance(outcome, Permanent)
    assert outcome.scope is Scope.MESSAGE


def test_a_large_upload_that_was_never_taken_whole_is_transient(engine: HttpEngine) -> None:
    with scripted_http(early=True) as server:
        server.always("/send", [Pause(2), CLOSE])
        result = post(engine, server, b"x" * 20_000_000)
    outcome = outcome_of(result)
    assert isinstance(outcome, Transient)
    assert (outcome.code, outcome.timed_out, result.request_complete) == ("send_timeout", True, False)


def test_an_endless_answer_is_cut_at_the_cap(engine: HttpEngine) -> None:
    with scripted_http() as server:
        server.always("/send", [b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000, CLOSE])
        result = post(engine, server)
    assert result.status == 200
    assert len(result.body) <= 2 * BODY_CAP


def test_redirects_are_not_followed_and_no_proxy_is_read(engine: HttpEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with scripted_http() as server:
        server.always("/send", answer(307, headers={"Location": "/elsewhere"}))
        outcome = outcome_of(post(engine, server))
        assert isinstance(outcome, Configuration)
        assert [r.path for r in server.received] == ["/send"]


def test_the_request_is_plain_http_1_1_without_expect(engine: HttpEngine) -> None:
    with scripted_http() as server:
        server.always("/send", answer(201))
        call(engine, HttpRequest(server.url + "/send", ["X-One: 1"], b"x" * 2_000_000))
        call(engine, HttpRequest(server.url + "/send", ["X-Two: 2"], b"abc"))
        call(engine, HttpRequest(server.url + "/send", ["X-Two: 2"], None, "GET"))
        call(engine, HttpRequest(server.url + "/send", ["X-Two: 2"], b"again"))
        assert [(r.method, len(r.body)) for r in server.received] == [
            ("POST", 2_000_000),
            ("POST", 3),
            ("GET", 0),
            ("POST", 5),
        ]
        assert all("expect" not in r.headers and "transfer-encoding" not in r.headers for r in server.received)
        assert "x-one" in server.received[0].headers
        assert "x-one" not in server.received[1].headers
        assert server.connections == 1


def test_results_come_in_the_order_of_completion_and_the_caller_may_act_meanwhile(engine: HttpEngine) -> None:
    def slow_or_fast(request: Received) -> Step:
        return [Pause(0.3), *answer(201)] if request.body == b"slow" else answer(201)

    with scripted_http() as server:
        server.always("/send", slow_or_fast)
        for token, body in enumerate([b"slow", b"fast", b"fast"]):
            engine.start(token, HttpRequest(server.url + "/send", [], body))
        ended = list(engine.results())
    tokens = [one[0] for one in ended if one is not None]
    assert tokens[-1] == 0
    assert sorted(tokens) == [0, 1, 2]
    assert ended.count(None) >= 3, "every 50 ms of silence the caller gets to run"


def test_closing_the_iterator_cuts_what_runs_and_the_engine_can_be_used_again(engine: HttpEngine) -> None:
    with scripted_http() as server:
        server.once("/send", [HANG])
        server.always("/send", answer(201))
        engine.start(0, HttpRequest(server.url + "/send", [], b"x"))
        running = engine.results()
        assert next(running) is None
        running.close()  # type: ignore[attr-defined]  # it is a generator
        assert post(engine, server).status == 201


def test_some_hundred_calls_run_at_once() -> None:
    patient = replace(LIMITS, total_timeout_ms=60_000, connect_timeout_ms=30_000)
    with scripted_http() as server, closing(HttpEngine(patient)) as engine:
        server.always("/send", [Pause(0.1), *answer(201)])
        for token in range(200):
            engine.start(token, HttpRequest(server.url + "/send", [], str(token).encode()))
        results = [one for one in engine.results() if one is not None]
        assert sorted(token for token, _ in results) == list(range(200))
        assert {result.status for _, result in results} == {201}
        assert set(server.count_by(lambda r: r.body.decode(), "/send").values()) == {1}


def test_what_is_stopped_says_at_once_whether_a_byte_of_its_request_had_left() -> None:
    engine = HttpEngine(HttpLimits(total_timeout_ms=30_000, connect_timeout_ms=30_000))
    with scripted_http() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        server.always("/send", [HANG])
        port = silent.getsockname()[1]
        engine.start(0, HttpRequest(server.url + "/send", [], b"x" * 500))
        engine.start(1, HttpRequest(f"https://127.0.0.1:{port}/send", [], b"x" * 500))  # never gets to its request
        outcomes = {}
        for ended in engine.results():
            if ended is not None:
                outcomes[ended[0]] = outcome_of(ended[1])
            elif server.posts("/send"):
                engine.stop()
        engine.start(2, HttpRequest(server.url + "/send", [], b"x" * 500))
        outcomes.update((ended[0], outcome_of(ended[1])) for ended in engine.results() if ended is not None)
        engine.close()
        assert outcomes[1] == outcomes[2] == NotAttempted("draining")
        assert isinstance(outcomes[0], Ambiguous)
        assert outcomes[0].code == "call_cut"
        assert len(server.posts("/send")) == 1
