"""What a person sees instead of a page: not found, not allowed, away, broken. Nothing here reads a store."""

from http import HTTPStatus
from pathlib import PurePosixPath

from flask import Response, current_app, g, make_response, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RoutingException

from admin.errors import ProblemError
from admin.monitoring.access import who
from admin.monitoring.frame import BlindError, blind, page
from admin.monitoring.panels import Panel, add_page
from admin.monitoring.sign_in.session import SAFE_METHODS
from shared.domain.roles import Role

_TITLES = {
    401: "You are not signed in",
    403: "Not allowed",
    404: "There is nothing here",
    405: "This page does not take that",
    500: "Something went wrong",
    503: "Not just now",
}
_ROLES = {Role.ADMIN: "may see and do everything", Role.READ: "may see everything and change nothing"}

add_page("away", Panel("away", "What is known"))


def fault_page(problem: ProblemError) -> Response:
    """
    Give the page of a problem.

    An address that takes a form and nothing else, opened or loaded again by hand, leads to the page of that form.
    """
    if problem.status == HTTPStatus.METHOD_NOT_ALLOWED and request.method in SAFE_METHODS:
        return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": _page_above()})
    person = who()
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE and person is not None and request.method in SAFE_METHODS:
        return _without_ledger(problem)
    shown = render_template(
        "fault.html",
        problem=problem,
        title=_TITLES.get(problem.status, "This did not work"),
        role=_ROLES[person.role] if person else "",
        request_id=g.get("request_id", ""),
    )
    return Response(shown, status=problem.status, headers=dict(problem.headers))


def _page_above() -> str:
    routes = current_app.create_url_adapter(request)
    for path in map(str, PurePosixPath(request.path).parents):
        try:
            if routes is not None and routes.match(path, method="GET"):
                return path
        except (HTTPException, RoutingException):
            continue
    return "/admin"


def _without_ledger(problem: ProblemError) -> Response:
    """What the last snapshot says stands around what cannot be read."""
    try:
        answer = make_response(page("away", "monitoring/away.html", request_id=g.get("request_id", "")))
    except BlindError as nothing:
        return make_response(blind(nothing))
    answer.status_code = problem.status
    answer.headers.update(dict(problem.headers))
    return answer
