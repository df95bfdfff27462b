"""Who calls the tenant API: `Authorization: Bearer tid_…`."""

from flask import request

from admin.errors import ProblemError
from admin.extensions import services
from shared.ledger import tenants
from shared.ledger.tenants import Caller

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tidings"'}


def _unauthorized(detail: str) -> ProblemError:
    return ProblemError(401, "unauthorized", detail, headers=_CHALLENGE)


def credential() -> Caller:
    """
    The holder of the request's key, bound to a tenant or not.

    Raises: ProblemError 401; unknown and revoked keys get the same words.
    """
    header = request.headers.get("Authorization", "")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise _unauthorized("Send your API key as `Authorization: Bearer tid_…`.")
    secret = secret.strip()
    if not tenants.looks_like_key(secret):
        raise _unauthorized("This is not a Tidings API key: it is cut short, mistyped, or of another service.")
    with services().ledger.transaction() as connection:
        caller = tenants.authenticate(connection, secret)
    if caller is None:
        raise _unauthorized("This API key is not valid: it is unknown or was revoked.")
    return caller


def tenant_id_of(caller: Caller) -> int:
    """
    The tenant a caller speaks for.

    Raises: ProblemError 403 for a load-test credential that is not bound yet.
    """
    if caller.tenant_id is None:
        raise ProblemError(403, "not-bound", "This key is not bound to a tenant; bind it first.")
    return caller.tenant_id
