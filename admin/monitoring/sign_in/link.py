"""One-time links: printed in a terminal by who may read SECRET_KEY, opened once in a browser."""

import hashlib
import secrets

from itsdangerous import BadSignature, Signer

from shared.ledger import audit, sign_ins
from shared.ledger.db import Connection

#: Seconds. Long enough to walk over to the browser.
LINK_LASTS_S = 15 * 60
#: Where links lead; `shared.log` takes what follows out of every line.
LINK_PATH = "/admin/sign-in/link/"

_SALT = "sign-in-link"


def new_link(connection: Connection, base_url: str, secret_key: str, *, operator: str) -> str:
    """
    Make a link that signs one browser in as `operator`, once, within LINK_LASTS_S seconds.

    Keep it as you would a password. It works once the caller's transaction is committed.
    """
    token = secrets.token_urlsafe(32)
    sign_ins.create_link(connection, _hash(token), operator=operator, lasts_s=LINK_LASTS_S)
    audit.record(connection, operator=operator, action="sign-in link", target="pages", result="made")
    return f"{base_url.rstrip('/')}{LINK_PATH}{Signer(secret_key, salt=_SALT).sign(token).decode()}"


def hash_in(signed: str, secret_key: str) -> bytes | None:
    """Give what the ledger knows a link by; None where it was not made with this key."""
    try:
        return _hash(Signer(secret_key, salt=_SALT).unsign(signed).decode())
    except BadSignature:
        return None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
