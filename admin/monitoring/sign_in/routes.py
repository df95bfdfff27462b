"""
The ways in and out: `/admin/sign-in`, the provider's callback, one-time links, `/admin/sign-out`.

Beginning at the provider is a link and no form: browsers hold a form's redirects against `form-action 'self'`.
"""

from http import HTTPStatus

from flask import Blueprint, g, make_response, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import current, open_to_all, reads, sessions
from admin.monitoring.sign_in.link import hash_in
from admin.monitoring.sign_in.oidc import Person, ProviderAwayError, RefusedError
from admin.monitoring.sign_in.return_path import safe_return
from admin.monitoring.sign_in.ways import OIDC_SETTINGS, ways_in
from shared.domain.roles import Role
from shared.ledger import audit, sign_ins
from shared.ledger.db import Connection

_RETURN_TO = "return_to"

pages = Blueprint("sign_in", __name__, url_prefix="/admin")


@pages.get("/sign-in")
@open_to_all
def sign_in() -> AnyResponse:
    """Say how one signs in here, or how that is set up."""
    return_to, ways = safe_return(request.args.get(_RETURN_TO)), ways_in(services().settings)
    if current() is not None:
        return redirect(return_to)
    shown = render_template(
        "sign_in/sign_in.html", ways=ways, needed=OIDC_SETTINGS, return_to=return_to, in_vain=_is_in_vain()
    )
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
    with services().ledger.transaction() as connection:
        _let_in(connection, person.name, role, person=person, by="single sign-on")
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
    with services().ledger.transaction() as connection:
        name = sign_ins.use_link(connection, token_hash)
        if name is not None:
            _let_in(connection, name, Role.ADMIN, by="link")
        else:
            reason = _why_spent(sign_ins.spent_link(connection, token_hash))
            _note_denied(connection, "nobody", reason)
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


def _failed(reason: str, status: HTTPStatus) -> AnyResponse:
    shown = render_template("sign_in/failed.html", reason=reason, ways=ways_in(services().settings))
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
    with services().ledger.transaction() as connection:
        _note_denied(connection, person.name, "no role", person)
    session.clear()
    shown = render_template("sign_in/no_role.html", name=person.name, reason=reason, elsewhere=_sign_out_elsewhere())
    return make_response(shown, HTTPStatus.FORBIDDEN)


def _why_spent(spent: sign_ins.SpentLink | None) -> str:
    if spent is None:
        return "This link was not made in this ledger, or so long ago that it is forgotten."
    return "This link was used before; it works once." if spent.was_used else "This link is too old."


def _note_denied(connection: Connection, name: str, reason: str, person: Person | None = None) -> None:
    with audit.caused_by(role=None, request_id=g.get("request_id")):
        _note(connection, name, result="denied", reason=reason, person=person)


def _let_in(connection: Connection, name: str, role: Role, *, by: str, person: Person | None = None) -> None:
    sessions().begin(connection, name=name, role=role, person=person)
    with audit.caused_by(role=role, request_id=g.get("request_id")):
        _note(connection, name, result="ok", reason=by, person=person)


def _note(connection: Connection, name: str, *, result: str, reason: str, person: Person | None) -> None:
    account = person.subject if person else None
    audit.record(
        connection, operator=name, action="sign in", target="pages", result=result, reason=reason, account=account
    )
