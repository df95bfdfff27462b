"""What a person sees instead of a page: not found, not allowed, away, broken. Nothing here needs a store."""

from flask import Response, g, render_template

from admin.errors import ProblemError
from admin.monitoring.access import who
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


def fault_page(problem: ProblemError) -> Response:
    """Give the page of a problem."""
    person = who()
    shown = render_template(
        "fault.html",
        problem=problem,
        title=_TITLES.get(problem.status, "This did not work"),
        role=_ROLES[person.role] if person else "",
        request_id=g.get("request_id", ""),
    )
    return Response(shown, status=problem.status, headers=dict(problem.headers))
