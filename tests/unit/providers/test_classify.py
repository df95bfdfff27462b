"""What a status and a Retry-After mean where a provider says nothing of its own."""

from datetime import UTC, datetime

import pytest

from shared.domain.outcome import Accepted, Ambiguous, Configuration, Permanent, Throttled, Transient
from workers.providers import classify
from workers.providers.http import HttpResult

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def result(status: int = 429, *headers: str) -> HttpResult:
    return HttpResult(status, [b"HTTP/1.1 429 Slow\r\n", *(h.encode() + b"\r\n" for h in headers), b"\r\n"], b"")


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((200, 201, 202, 204), Accepted),
        ((300, 301, 302, 307, 308, 401, 402, 403, 501, 505), Configuration),
        ((400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 418, 422, 431, 451, 499), Permanent),
        ((421, 425, 429), Throttled),
        ((408, 503), Transient),
        ((500, 502, 504, 507, 520, 521, 522, 523, 524, 525, 599, 999), Ambiguous),
    ],
)
def test_each_status_has_its_default(statuses: tuple[int, ...], kind: type) -> None:
    for status in statuses:
        assert isinstance(classify.status_default(result(status), code="x"), kind), status


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ((), None),
        (("Retry-After: 30",), 30.0),
        (("retry-after:  30 ",), 30.0),
        (("Retry-After: 0",), 0.0),
        (("Retry-After: Mon, 30 Nov 2026 12:01:30 GMT",), 90.0),
        (("Retry-After: Mon, 30 Nov 2026 11:00:00 GMT",), 0.0),
        (("Retry-After: Monday, 30-Nov-26 12:01:30 GMT",), 90.0),
        (("Retry-After: soon",), None),
        (("Retry-After: -5",), None),
        (("Retry-After: nan",), None),
        (("Retry-After: 1_0",), None),
        (("Retry-After: ",), None),
        (("RateLimit-Reset: 12",), 12.0),
        (("X-RateLimit-Reset: 1796040060",), 60.0),
        (("X-RateLimit-Reset: 2.5",), 2.5),
        (("RateLimit-Reset: 12", "Retry-After: 3"), 3.0),
        (("Retry-After: soon", "RateLimit-Reset: 12"), 12.0),
        (("Retry-After: Mon, 30 Nov 2026 12:00:00 +99999999999999999999", "RateLimit-Reset: 12"), 12.0),
        (("Retry-After-Ms: 1500", "Retry-After: 3"), 1.5),
    ],
)
def test_the_wait_is_read_as_providers_write_it(headers: tuple[str, ...], seconds: float | None) -> None:
    assert classify.retry_after_s(result(429, *headers), NOW) == seconds


def test_headers_of_an_interim_answer_do_not_count() -> None:
    answer = HttpResult(
        429, [b"HTTP/1.1 103 x\r\n", b"Retry-After: 9\r\n", b"\r\n", b"HTTP/1.1 429 x\r\n", b"\r\n"], b""
    )
    assert classify.retry_after_s(answer, NOW) is None


@pytest.mark.parametrize("body", [b"", b"[1]", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_object_reads_as_an_empty_one(body: bytes) -> None:
    assert HttpResult(200, [], body).json() == {}


def test_a_failure_code_is_short_and_plain() -> None:
    assert classify.as_code("ches_422", "delayTS") == "ches_422_delayts"
    assert classify.as_code("x", "a b<script>\n" * 50).isascii()
    assert len(classify.as_code("x" * 500)) == 64
