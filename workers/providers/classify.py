"""
What an HTTP exchange proves: the parts that are the same for every HTTP provider.

The sharpest line between "surely not taken" and "may have been taken" is whether one byte of the request
left this machine. A provider's own codes come first (in its adapter); these are the defaults behind them.
"""

import email.utils
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import pycurl

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
from workers.providers.http import HttpResult

#: Failures before a byte left that only a change of settings cures: the URL, the scheme, our CA bundle or
#: client certificate, a certificate that does not verify.
_OUR_SETUP = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "bad_url",
    pycurl.E_URL_MALFORMAT: "bad_url",
    pycurl.E_COULDNT_RESOLVE_PROXY: "proxy",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls_verify",
    pycurl.E_SSL_CACERT_BADFILE: "tls_ca_file",
    pycurl.E_SSL_CERTPROBLEM: "tls_client_certificate",
    pycurl.E_SSL_ISSUER_ERROR: "tls_verify",
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: "tls_verify",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls_verify",
}

#: Failures before a byte left that pass by themselves.
_NOT_REACHED = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_SSL_CONNECT_ERROR: "tls_handshake",
}

#: Failures after bytes left; what is not listed is "connection_lost".
_NO_PROOF = {
    pycurl.E_GOT_NOTHING: "no_answer",
    pycurl.E_SEND_FAIL_REWIND: "reused_connection_lost",
    pycurl.E_UNSUPPORTED_PROTOCOL: "unreadable_answer",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "unreadable_answer",
}

# Statuses where the provider's own answer says nothing more precise; 3xx joins the first, other 4xx are
# permanent for the message and other 5xx without proof.
_CONFIGURATION = frozenset({401, 402, 403, 501, 505})
_SLOW_DOWN = frozenset({421, 425, 429})
_BEFORE_THE_WORK = frozenset({408, 503})

#: Header names, in order of preference, whose value is seconds to wait, a date, or a Unix time.
_WAIT_HEADERS = ("retry-after", "ratelimit-reset", "x-ratelimit-reset")
#: a plain number above this is a Unix time, not a wait: 10^9 s is the year 2001.
_UNIX_TIME_FROM = 1_000_000_000

_UNSAFE_IN_CODE = re.compile(r"[^a-z0-9_.]+")


def transport_failure(result: HttpResult) -> Outcome:
    """
    Say what an exchange without any final status line proves.

    A status line with its body lost is no matter for this function: the status is proof enough. Over TLS
    the count leaves out a write that failed half-way; then the last record, and so the request, is incomplete.
    Source: RFC 9110 §9.2.2 (a POST must not be repeated when it may have been applied).
    """
    timed_out = result.error == pycurl.E_OPERATION_TIMEDOUT
    if result.error == pycurl.E_ABORTED_BY_CALLBACK:
        return ambiguous(result, code="call_cut") if result.bytes_sent else NotAttempted("draining")
    if result.error and result.bytes_sent == 0:
        if result.error in _OUR_SETUP:
            return Configuration(Scope.PROVIDER, _OUR_SETUP[result.error], result.error_text)
        if timed_out:
            return Transient(Scope.PROVIDER, "connect_timeout", result.error_text, timed_out=True)
        return Transient(Scope.PROVIDER, _NOT_REACHED.get(result.error, "not_sent"), result.error_text)
    if timed_out and not result.request_complete:
        # Content-Length announced more than was ever handed to the kernel: no server can have it all.
        return Transient(Scope.PROVIDER, "send_timeout", result.error_text, timed_out=True)
    code = "timeout" if timed_out else _NO_PROOF.get(result.error, "connection_lost")
    return ambiguous(result, code=code, detail=result.error_text, timed_out=timed_out)


def status_default(result: HttpResult, *, code: str, detail: str = "") -> Outcome:
    """
    Say what a status means where the provider said nothing more precise.

    `code` names the failure's group ("ches_422"). An answer without proof stays one where a key is in force: ADR-0007.
    """
    status = result.status
    if result.is_success:
        return Accepted(None)
    if status in _SLOW_DOWN:
        return Throttled(code, detail, retry_after_s(result))
    if status in _CONFIGURATION or HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Configuration(Scope.PROVIDER, code, detail)
    if status in _BEFORE_THE_WORK:
        return Transient(Scope.PROVIDER, code, detail, retry_after_s=retry_after_s(result))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ambiguous(result, code=code, detail=detail)
    return Permanent(Scope.MESSAGE, code, detail)


def ambiguous(result: HttpResult, *, code: str, detail: str = "", timed_out: bool = False) -> Ambiguous:
    """Make an Ambiguous outcome with the evidence a person needs."""
    evidence = {
        "status": str(result.status),
        "curl_error": str(result.error),
        "elapsed_ms": str(int(result.elapsed_s * 1_000)),
    }
    if result.error:
        evidence["bytes_sent"] = str(result.bytes_sent)
    failed = result.status == 0 or result.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Ambiguous(code, detail, timed_out=timed_out, provider_failed=failed, evidence=evidence)


def retry_after_s(result: HttpResult, now: datetime | None = None) -> float | None:
    """
    Read how many seconds the provider asks us to wait; None where it does not say, never negative.

    Source: RFC 9110 §10.2.3 (seconds or an HTTP date); ratelimit-reset and x-ratelimit-reset as gateways
    send them (seconds, or a Unix time); retry-after-ms of some Azure services.
    """
    milliseconds = _number(result.header("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1_000
    now = now or datetime.now(UTC)
    for name in _WAIT_HEADERS:
        value = result.header(name)
        if value is None:
            continue
        number = _number(value)
        if number is None:
            wait = _seconds_until(value, now)
        else:
            wait = number - now.timestamp() if number >= _UNIX_TIME_FROM else number
        if wait is not None:
            return max(0.0, wait)
    return None


def first_detail(*parts: object) -> str:
    """Give the first non-empty string among the parts of an answer, cut to 300 characters."""
    return next((part[:300] for part in parts if isinstance(part, str) and part), "")


def as_code(*parts: object) -> str:
    """Join parts into a short stable name: lower case, digits, dots and underscores only."""
    return "_".join(_UNSAFE_IN_CODE.sub("_", str(part).lower()).strip("_") for part in parts)[:64]


def text_of(result: HttpResult) -> str:
    """Give the start of an answer's body as text, for a `detail`."""
    return result.body[:300].decode("utf-8", "replace")


def every(outcome: Outcome, count: int) -> Sequence[tuple[int, Outcome]]:
    """Give the same outcome to `count` messages."""
    return [(index, outcome) for index in range(count)]


def _number(value: str | None) -> float | None:
    # float() alone would take "nan", "inf" and "1_0".
    return float(value) if value and re.fullmatch(r"\d{1,15}(\.\d{1,9})?", value) else None


def _seconds_until(value: str, now: datetime) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # the second for an offset from UTC of any length
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()
