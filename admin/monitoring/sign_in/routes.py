"""
The ways in and out: `/admin/sign-in`, the provider's callback, one-time links, `/admin/sign-out`.

Beginning at the provider is a link and no form: browsers hold a form's redirects against `form-action 'self'`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http import HTTPStatus

from flask import Blueprint, g, make_response, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import current, open_to_all, reads, sessions
from admin.monitoring.sign_in.link import hash_in
from admin.monitoring.sign_in.oidc import Person, ProviderAwayError, RefusedError
from admin.monitoring.sign_in.owed import SignInNote
from admin.monitoring.sign_in.return_path import safe_return
from admin.monitoring.sign_in.ways import OIDC_SETTINGS, ways_in
from shared.domain.roles import Role
from shared.ledger import sign_ins
from shared.ledger.db import POSTGRES_AWAY, Connection

_log = logging.getLogger(__name__)

_RETURN_TO = "return_to"
#: A link is good once, which the ledger alone knows.
_LINK_UNCHECKED = (
    "The ledger does not answer, so nobody can tell whether this link was used before. Keep it, and open it again once "
    "the ledger is back."
)

pages = Blueprint("sign_in", __name__, url_prefix="/admin")


@pages.get("/sign-in")
@open_to_all
def sign_in() -> AnyResponse:
    """Say how one signs in here, or how that is set up."""
    return_to, ways = safe_return(request.args.get(_RETURN_TO)), ways_in(services().settings)
    with suppress(*POSTGRES_AWAY):
        if current() is not None:
            return redirect(return_to)
    shown = render_template(
        "sign_in/sign_in.html", ways=ways, needed=OIDC_SETTINGS, return_to=return_to, in_vain=_is_in_vain(),
        is_ledger_away=services().reading.is_resting,
    )  # fmt: skip
    return make_response(shown, HTTPStatus.OK if ways.sso or ways.links else HTTPStatus.FORBIDDEN)


@pages.get("/sign-in/start")
@open_to_all
def start() -> AnyResponse:
    """Send the browser to the provider."""
    provider = sessions().provider
    if provider is None:
        return redirect(url_for("sign_in.sign_in"))
    try:
        answer = provider.begin(_own_address("sign_in.callback"))
    except ProviderAwayError as away:
        return _failed(str(away), HTTPStatus.SERVICE_UNAVAILABLE)
    session[_RETURN_TO] = safe_return(request.args.get(_RETURN_TO))
    return answer


@pages.get("/sign-in/callback")
@open_to_all
def callback() -> AnyResponse:
    """Take the browser back from the provider."""
    provider = sessions().provider
    if provider is None:
        return redirect(url_for("sign_in.sign_in"))
    try:
        person = provider.complete()
    except RefusedError as refused:
        return _failed(str(refused), HTTPStatus.FORBIDDEN)
    except ProviderAwayError as away:
        return _failed(str(away), HTTPStatus.SERVICE_UNAVAILABLE)
    role = sessions().role_of(person)
    if role is None:
        return _without_role(person)
    return_to = safe_return(session.get(_RETURN_TO))
    note = _note(person.name, result="ok", reason="single sign-on", role=role, person=person)
    try:
        with _ledger_that_answers() as connection:
            sessions().begin(connection, name=person.name, role=role, person=person)
            note.write(connection)
    except POSTGRES_AWAY:
        _log.warning("signed_in_without_ledger", extra={"operator": person.name})
        sessions().begin_unwritten(name=person.name, role=role)
        sessions().owed.add(replace(note, reason=f"{note.reason}, to read"))
    return redirect(return_to)


@pages.get("/sign-in/link/<signed>")
@open_to_all
def link(signed: str) -> AnyResponse:
    """Use a one-time link up. The page after it has another address, so that the link stays nowhere."""
    if request.method == "HEAD":  # a preview of the link must not use it up
        return make_response("", HTTPStatus.NO_CONTENT)
    settings = services().settings
    ways = ways_in(settings)
    if settings.secret_key is None or not ways.links:
        return _failed(f"Links open nothing here: {ways.why_no_link}.", HTTPStatus.FORBIDDEN)
    token_hash = hash_in(signed, settings.secret_key.get_secret_value())
    if token_hash is None:
        reason = "This link was not made here: it is cut short, or SECRET_KEY has changed since."
        return _failed(reason, HTTPStatus.FORBIDDEN)
    before = dict(session)
    try:
        with _ledger_that_answers() as connection:
            name = sign_ins.use_link(connection, token_hash)
            if name is not None:
                sessions().begin(connection, name=name, role=Role.ADMIN)
                _note(name, result="ok", reason="link", role=Role.ADMIN).write(connection)
            else:
                reason = _why_spent(sign_ins.spent_link(connection, token_hash))
                _note("nobody", result="denied", reason=reason).write(connection)
    except POSTGRES_AWAY:
        session.clear()
        session.update(before)
        return _failed(_LINK_UNCHECKED, HTTPStatus.SERVICE_UNAVAILABLE, offers_link=False)
    if name is None:
        return _failed(reason, HTTPStatus.FORBIDDEN)
    answer = redirect(safe_return(request.args.get(_RETURN_TO)))
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


@pages.post("/sign-out")
@reads
def sign_out() -> AnyResponse:
    """End the session here; the page after it leads to the provider's own sign-out."""
    sessions().end()
    return redirect(url_for("sign_in.signed_out"), HTTPStatus.SEE_OTHER)


@pages.get("/signed-out")
@open_to_all
def signed_out() -> str:
    """Say that the browser is signed out."""
    return render_template("sign_in/signed_out.html", elsewhere=_sign_out_elsewhere())


def _is_in_vain() -> bool:
    """Whether the browser will not send the cookie back: it is for TLS, and the page came without."""
    reached_by = request.headers.get("X-Forwarded-Proto", request.scheme)
    return sessions().is_secure and reached_by == "http"


def _own_address(endpoint: str) -> str:
    return f"{services().settings.public_url}{url_for(endpoint)}"


def _sign_out_elsewhere() -> str | None:
    provider = sessions().provider
    return provider.sign_out_url(_own_address("sign_in.signed_out")) if provider else None


def _failed(reason: str, status: HTTPStatus, *, offers_link: bool = True) -> AnyResponse:
    ways = ways_in(services().settings)
    shown = render_template("sign_in/failed.html", reason=reason, ways=ways, offers_link=offers_link and ways.links)
    return make_response(shown, status)


def _without_role(person: Person) -> AnyResponse:
    settings = services().settings
    names = " or ".join(filter(None, (settings.admin_role, settings.admin_read_role)))
    given = ", ".join(sorted(person.roles or ())[:20]) or "none"
    reason = f"The pages need the role {names}. Yours at {settings.oidc_role_claim}: {given}."
    if person.roles is None:
        reason = (
            f"The pages need the role {names}. The sign-in provider sent no roles at {settings.oidc_role_claim}, "
            "neither in the ID token nor in userinfo."
        )
    note = _note(person.name, result="denied", reason="no role", person=person)
    try:
        with _ledger_that_answers() as connection:
            note.write(connection)
    except POSTGRES_AWAY:
        _log.warning("sign_in_denied_without_ledger", extra={"operator": person.name})
        sessions().owed.add(note)
    session.clear()
    shown = render_template("sign_in/no_role.html", name=person.name, reason=reason, elsewhere=_sign_out_elsewhere())
    return make_response(shown, HTTPStatus.FORBIDDEN)


def _why_spent(spent: sign_ins.SpentLink | None) -> str:
    if spent is None:
        return "This link was not made in this ledger, or so long ago that it is forgotten."
    return "This link was used before; it works once." if spent.was_used else "This link is too old."


@contextmanager
def _ledger_that_answers() -> Iterator[Connection]:
    """Lend a connection; raises one of POSTGRES_AWAY, soon where the ledger does not answer."""
    services().reading.refuse_while_away()
    with services().ledger.transaction() as connection:
        yield connection


def _note(name: str, *, result: str, reason: str, role: Role | None = None, person: Person | None = None) -> SignInNote:
    account = person.subject if person else None
    return SignInNote(name, result, reason, role, account, g.get("request_id"))
