"""
Who may see the sandbox inbox: whoever opened a signed link, and their browser for some hours after.

Nothing is stored. A link is made by `tidings inbox` (and by `make up`) from the SECRET_KEY that the web process has;
without one no link can be made and the inbox stays shut. So a production installation shows nobody its messages
by accident, and on a laptop one click is enough. The sign-in of the operators' pages will take its place.
"""

import time

from itsdangerous import BadData, URLSafeSerializer

#: Seconds. A link is printed to be clicked soon, but `make up` may have been running since the morning.
LINK_LASTS_S = 12 * 3600
#: Seconds a browser stays admitted.
SESSION_LASTS_S = 12 * 3600

_LINK, _SESSION = "inbox-link", "inbox-session"


def link_to_inbox(base_url: str, secret_key: str) -> str:
    """The address that admits a browser; keep it as you would a password, for LINK_LASTS_S seconds."""
    return f"{base_url.rstrip('/')}/inbox/open/{_sign(secret_key, _LINK, LINK_LASTS_S)}"


def opens(link_part: str, secret_key: str) -> bool:
    """Whether the last part of a link was made with this key and is still good."""
    return _holds(link_part, secret_key, _LINK)


def new_session(secret_key: str) -> str:
    """The cookie's value for a browser that came through a link."""
    return _sign(secret_key, _SESSION, SESSION_LASTS_S)


def is_admitted(cookie: str | None, secret_key: str) -> bool:
    """Whether a browser with this cookie came through a link not too long ago."""
    return bool(cookie) and _holds(cookie or "", secret_key, _SESSION)


def _sign(secret_key: str, purpose: str, lasts_s: int) -> str:
    return str(URLSafeSerializer(secret_key, salt=purpose).dumps(int(time.time()) + lasts_s))


def _holds(signed: str, secret_key: str, purpose: str) -> bool:
    try:
        until = URLSafeSerializer(secret_key, salt=purpose).loads(signed)
    except BadData:
        return False
    return isinstance(until, int) and time.time() < until
