"""A filter in an address that says nothing: told, since a list of something else would be taken for the answer."""

from http import HTTPStatus

from flask import request

from admin.errors import ProblemError


def wrong_filter(name: str, what: str) -> ProblemError:
    """Say what is wrong with one part of a filter: `what` goes on after its name."""
    detail = f"The filter does not say what is meant: {name} {what}."
    return ProblemError(HTTPStatus.BAD_REQUEST, "bad-filter", detail)


def know_only(*names: str) -> None:
    """
    Hold the parts of the running request's filter against those that its page has.

    Raises: ProblemError 400 naming one that there is not.
    """
    for name in request.args:
        if name not in names:
            raise wrong_filter(ascii(name)[1:-1][:40], f"is none of {', '.join(names)}")
