"""
Every error of the HTTP API as `application/problem+json`, in one shape, and nothing internal in any of them.

Source: RFC 9457 (problem details), RFC 6901 (JSON pointers).
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import psycopg
from flask import Flask, Response, current_app, g, request
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]  # it has no types
from psycopg_pool import PoolClosed, PoolTimeout
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionInTime
from werkzeug.exceptions import HTTPException

_log = logging.getLogger(__name__)

#: Seconds. A restarted Postgres or a fail-over takes about this long.
_RETRY_AFTER_S = 5


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a body, and where: a JSON pointer, empty for the whole."""

    pointer: str
    detail: str


@dataclass
class ProblemError(Exception):
    """An answer of 4xx or 5xx. `slug` is the stable name of its kind; `more` counts faults beyond those listed."""

    status: int
    slug: str
    detail: str
    faults: Sequence[Fault] = ()
    more: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.slug}"


def not_found(what: str) -> ProblemError:
    """The answer for an id that does not exist, is malformed, or belongs to another tenant: all look alike."""
    return ProblemError(404, "not-found", f"There is no such {what}.")


def response_for(problem: ProblemError) -> Response:
    """The HTTP response of a problem."""
    body: dict[str, object] = {
        "type": f"/api/v1/docs#{problem.slug}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "request_id": g.get("request_id", ""),
    }
    if problem.faults:
        body["errors"] = [{"pointer": fault.pointer, "detail": fault.detail} for fault in problem.faults]
        body["error_count"] = len(problem.faults) + problem.more
    return Response(
        json.dumps(body), status=problem.status, headers=dict(problem.headers), mimetype="application/problem+json"
    )


#: Where the pages for people are; everything else is for programs.
_PAGES = re.compile(r"/(admin|inbox)(/|$)")
_AS_PAGE = "tidings-fault-page"


def is_page() -> bool:
    """Whether the request is for a page."""
    return _PAGES.match(request.path) is not None


def wants_html() -> bool:
    """Whether a person asks, in a browser; scripts of the pages ask for something else."""
    return "text/html" in request.headers.get("Accept", "")


def answer_for(problem: ProblemError) -> Response:
    """Give the problem as a page where a person asks for a page, else as problem+json."""
    as_page: Callable[[ProblemError], Response] | None = current_app.extensions.get(_AS_PAGE)
    if as_page is not None and is_page() and wants_html():
        return as_page(problem)
    return response_for(problem)


_STATUS_SLUGS = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "not-json",
}


def _from_http_exception(error: HTTPException) -> Response:
    if error.response is not None or error.code is None or error.code < HTTPStatus.BAD_REQUEST:
        return error.get_response()  # type: ignore[return-value]  # a redirect, or a response somebody made
    headers = {name: value for name, value in error.get_headers() if name in {"Allow", "Retry-After"}}
    if not request.path.startswith("/api/") and not is_page():
        return Response(f"{error.code} {error.name}\n", status=error.code, headers=headers, mimetype="text/plain")
    details = {
        404: "There is nothing at this address.",
        405: f"This address does not take {request.method}; it takes {headers.get('Allow', 'something else')}.",
    }
    detail = details.get(error.code, error.description or error.name)
    slug = _STATUS_SLUGS.get(error.code, "request-failed")
    return answer_for(ProblemError(error.code, slug, detail, headers=headers))


def _from_broken_chunks(error: Exception) -> Response:
    _log.info("body_unreadable", extra={"error": type(error).__name__})
    return answer_for(ProblemError(400, "bad-request", "The body is not in chunks as HTTP defines them."))


def _from_lost_database(error: Exception) -> Response:
    _log.warning("database_unavailable", extra={"error": type(error).__name__})
    remedy = "Repeat the request; a submission is safe to repeat under the same Idempotency-Key."
    if is_page():
        remedy = "Nothing was changed, unless only its answer was lost: look before you repeat it."
    problem = ProblemError(
        503,
        "unavailable",
        f"The ledger cannot be reached just now. {remedy}",
        headers={"Retry-After": str(_RETRY_AFTER_S)},
    )
    return answer_for(problem)


def _from_bug(error: Exception) -> Response:
    # One of the two borders of the process where anything is caught: the client learns an id, the log the rest.
    _log.error("request_failed", exc_info=error, extra={"request_id": g.get("request_id", "")})
    if not request.path.startswith("/api/") and not is_page():
        return Response("500 Internal Server Error\n", status=500, mimetype="text/plain")
    return answer_for(
        ProblemError(500, "internal", "Something went wrong on our side. It is logged under this request's id.")
    )


def register(app: Flask, as_page: Callable[[ProblemError], Response] | None = None) -> None:
    """Install the handlers; the most specific exception class wins. `as_page` makes a page of a problem."""
    app.extensions[_AS_PAGE] = as_page
    app.register_error_handler(ProblemError, answer_for)
    app.register_error_handler(HTTPException, _from_http_exception)
    app.register_error_handler(ParseException, _from_broken_chunks)
    read_only = psycopg.errors.ReadOnlySqlTransaction
    for lost in (psycopg.OperationalError, read_only, PoolTimeout, PoolClosed, OperationalError, NoConnectionInTime):
        app.register_error_handler(lost, _from_lost_database)
    app.register_error_handler(Exception, _from_bug)
