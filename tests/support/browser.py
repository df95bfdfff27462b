"""A person at the pages: a Flask client that is signed in and fills in forms as a browser does."""

import re
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

from flask import Flask
from flask.testing import FlaskClient
from itsdangerous import URLSafeTimedSerializer
from werkzeug.test import TestResponse

from admin.extensions import installed
from shared.domain.roles import Role
from shared.ledger import sign_ins
from shared.ledger.db import POSTGRES_AWAY

SECRET_KEY = "a-secret-key-of-more-than-32-characters"
NAVIGATION = {
    "Accept": "text/html,application/xhtml+xml",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
}


class Browser:
    """
    Opens pages and posts forms, as `name` in `role`; with no role nobody is signed in.

    The application must have been made with a SECRET_KEY.
    """

    def __init__(self, app: Flask, *, role: Role | None = Role.ADMIN, name: str = "kim") -> None:
        self.app = app
        self.client: FlaskClient = app.test_client()
        if role is not None:
            sign_in(app, self.client, role=role, name=name)

    def get(self, path: str, *, follow: bool = False, **headers: str) -> TestResponse:
        """Open an address; header names are written with underscores."""
        return self.client.get(path, headers=_headers(headers), follow_redirects=follow)

    def post(
        self, path: str, form: dict[str, Any] | None = None, *, follow: bool = False, **headers: str
    ) -> TestResponse:
        """Post a form of one of our pages, its CSRF token with it."""
        filled = {"csrf_token": self.token(), **(form or {})}
        return self.client.post(path, data=filled, headers=_headers(headers), follow_redirects=follow)

    def token(self) -> str:
        """Give the token that a form of this session has in it."""
        with self.client.session_transaction() as kept:
            raw = kept.get("csrf_token", "")
        return str(URLSafeTimedSerializer(str(self.app.secret_key), salt="wtf-csrf-token").dumps(raw))

    def cookies(self) -> str:
        """Give the session cookie's value."""
        found = self.client.get_cookie(str(self.app.config["SESSION_COOKIE_NAME"]))
        return found.value if found else ""

    def session_id(self) -> str:
        """Give the id of the session that the cookie names."""
        with self.client.session_transaction() as kept:
            return str(kept["operator"]["id"])

    def looked_ago(self, seconds: int) -> None:
        """Let the cookie's last look at the ledger be so long ago."""
        with self.client.session_transaction() as kept:
            kept["operator"]["looked"] = time.time() - seconds
            kept.modified = True


def sign_in(app: Flask, client: FlaskClient, *, role: Role, name: str = "kim") -> None:
    """Sign a client in, with a session in the ledger; while that is away, its cookie is believed for a while."""
    session_id = uuid4()
    with suppress(*POSTGRES_AWAY), installed(app).ledger.transaction() as connection:
        sign_ins.begin(connection, session_id, operator=name, role=role, lasts_s=3600)
    now = time.time()
    with client.session_transaction() as kept:
        kept.clear()
        kept.permanent = True
        kept["csrf_token"] = session_id.hex
        kept["operator"] = {"id": str(session_id), "name": name, "role": role, "until": now + 3600, "looked": now}


def text_of(answer: TestResponse) -> str:
    """Give what a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def _headers(given: dict[str, str]) -> dict[str, str]:
    return {**NAVIGATION, **{name.replace("_", "-"): value for name, value in given.items()}}
