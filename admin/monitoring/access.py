"""
Who may open a page and who may act: each view of the pages says what it needs, and nothing else decides.

    @pages.get("/failures")
    @reads
    def failures() -> str: ...

    @pages.post("/failures/requeue")
    @acts
    def requeue() -> AnyResponse: ...

A mark goes directly above the function, below the route. A page's view without a mark is open to nobody.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from enum import StrEnum
from http import HTTPStatus
from typing import TypeVar

from flask import Flask, Response, current_app, g, redirect, request, url_for
from flask_wtf.csrf import CSRFError, CSRFProtect  # type: ignore[import-untyped]  # it has no types
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError, is_page, wants_html
from admin.extensions import services
from admin.monitoring.sign_in.session import LASTS_S, SAFE_METHODS, Operator, Sessions
from shared.ledger import audit
from shared.ledger.db import POSTGRES_AWAY

_log = logging.getLogger(__name__)

View = TypeVar("View", bound=Callable[..., object])

_MARK = "tidings_needs"
_SESSIONS = "tidings-sessions"
_csrf = CSRFProtect()

#: For every page; no page has inline styles, scripts or handlers, and nothing comes from another host.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Need(StrEnum):
    """What a view asks of whoever calls it."""

    NOTHING = "nothing"
    READING = "reading"
    ACTING = "acting"


def open_to_all(view: View) -> View:
    """Mark a view that whoever is not signed in must reach: the way in, and nothing that tells of deliveries."""
    return _mark(view, Need.NOTHING)


def reads(view: View) -> View:
    """Mark a view for everybody who is signed in."""
    return _mark(view, Need.READING)


def acts(view: View) -> View:
    """Mark a view for those who may change something."""
    return _mark(view, Need.ACTING)


def need_of(view: object) -> Need | None:
    """What a view is marked with; None is not marked, and served to nobody."""
    found: Need | None = getattr(view, _MARK, None)
    return found


def _mark(view: View, need: Need) -> View:
    setattr(view, _MARK, need)  # functools.wraps carries it on to what is put around the view
    return view


def sessions() -> Sessions:
    """Give the sessions of the running request's app."""
    found: Sessions = current_app.extensions[_SESSIONS]
    return found


def current() -> Operator | None:
    """Give who is signed in, on a page that is open to all."""
    return sessions().current()


def who() -> Operator | None:
    """Give the person who is signed in; None on the way in and on pages of faults."""
    found: Operator | None = g.get("operator")
    return found


def operator() -> str:
    """Give the name of the person who is signed in, for the audit and the header."""
    found = who()
    return found.name if found else ""


def note_ledger_away() -> None:
    """Remember for this request that the ledger is away: nothing can be changed."""
    g.is_ledger_away = True


def may_act() -> bool:
    """Whether the person who is signed in may change something now; a template disables its buttons by it."""
    return who() is not None and not why_not_act()


def why_not_act() -> str:
    """Say why the person may change nothing, for a disabled button; empty where they may."""
    found = who()
    if found is None:
        return "You are not signed in."
    if found.role.may_act and (g.get("is_ledger_away") or services().reading.is_resting):
        return "The ledger does not answer: nothing can be changed just now."
    if found.may_act:
        return ""
    if found.doubt and found.role.may_act:
        return f"Your role cannot be confirmed just now: {found.doubt}. You can read; nothing can be changed."
    return f"You are signed in to read. Changing something needs the role {services().settings.admin_role}."


def install(app: Flask, kept: Sessions) -> None:
    """Put the guard in front of every page of an application."""
    is_secure = kept.is_secure
    app.secret_key = kept.signing_key
    app.config.update(
        # The prefix makes browsers refuse a cookie of this name from another host of the domain.
        SESSION_COOKIE_NAME="__Host-tidings" if is_secure else "tidings",
        SESSION_COOKIE_SECURE=is_secure,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_REFRESH_EACH_REQUEST=False,
        PERMANENT_SESSION_LIFETIME=LASTS_S,
        # The guard calls it, for pages alone; a form may stay open as long as its session lasts; behind a proxy that
        # ends TLS the Referer proves nothing that Sec-Fetch-Site does not.
        WTF_CSRF_CHECK_DEFAULT=False,
        WTF_CSRF_TIME_LIMIT=None,
        WTF_CSRF_SSL_STRICT=False,
    )
    app.extensions[_SESSIONS] = kept
    _csrf.init_app(app)
    app.before_request(_guard)
    app.after_request(_seal)
    app.teardown_request(_leave)
    app.context_processor(
        lambda: {
            "environment": kept.environment,
            "signed_in": who,
            "operator": operator,
            "may_act": may_act,
            "why_not_act": why_not_act,
        }
    )


def _guard() -> AnyResponse | None:
    """Let a request for a page through, or answer it; what belongs to no page is none of its business."""
    if not is_page():
        return None
    need = _need()
    if need is Need.NOTHING:
        return None
    found = sessions().current()
    if found is None:
        return _ask_to_sign_in()
    g.operator = found
    g.audit_scope = scope = ExitStack()
    scope.enter_context(_caused_by(found))
    if request.method not in SAFE_METHODS:
        _refuse_other_sites()
    if need is Need.ACTING and not found.may_act:
        if found.role.may_act and request.method in SAFE_METHODS:
            services().reading.refuse_while_away()  # nobody is denied a look that could not be answered anyway
        _deny(why_not_act())
    return None


def _caused_by(found: Operator) -> AbstractContextManager[None]:
    return audit.caused_by(role=found.role, request_id=g.get("request_id"), session=found.session_id)


def _need() -> Need:
    view = current_app.view_functions.get(request.endpoint or "")
    if view is None:
        return Need.READING  # nothing is there; only who is signed in learns that
    need = need_of(view)
    if need is None:
        _log.error("page_without_mark", extra={"endpoint": request.endpoint})
        raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", "Nobody may open this page: it does not say who may.")
    return need


def _ask_to_sign_in() -> AnyResponse:
    if request.method not in SAFE_METHODS:
        _log.warning("denied", extra={"endpoint": request.endpoint, "reason": "not signed in"})
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED, "unauthorized", "You are not signed in any more. Nothing was changed."
        )
    if not wants_html():  # a script asks, and cannot follow to a sign-in
        raise ProblemError(HTTPStatus.UNAUTHORIZED, "unauthorized", "You are not signed in.")
    return redirect(url_for("sign_in.sign_in", return_to=request.full_path.removesuffix("?")))


def _refuse_other_sites() -> None:
    """Refuse what another site made the browser send; browsers too old to say so are left to the token."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        _deny("Another site sent this request with your browser. Nothing was changed.")
    try:
        _csrf.protect()
    except CSRFError:
        _deny("This form is of an earlier sign-in. Nothing was changed: open the page anew and repeat it.")


def _deny(reason: str) -> None:
    """
    Write the attempt down and refuse it.

    Raises: ProblemError 403, always.
    """
    name = operator()
    target = f"{request.method} {request.path}"
    try:
        services().reading.refuse_while_away()
        with services().ledger.transaction() as connection:
            audit.record(connection, operator=name, action="denied", target=target, result="denied", reason=reason)
    except POSTGRES_AWAY:
        _log.warning("denied", extra={"operator": name, "endpoint": request.endpoint, "reason": reason})
    raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", reason)


def _seal(response: Response) -> Response:
    if is_page():
        response.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Referrer-Policy", "same-origin")
        response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def _leave(error: BaseException | None) -> None:
    del error
    scope: ExitStack | None = g.pop("audit_scope", None)
    if scope is not None:
        scope.close()
