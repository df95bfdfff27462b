"""
Who is signed in: a signed cookie that names a session, and the session's row in the ledger that says whether it lasts.

The row is looked at every LOOK_S seconds and before anything is changed; every OIDC_RECHECK_MS the provider is asked
whether the role still stands, by one process for all. While the ledger or the provider is away, reading goes on for
UNCONFIRMED_S: that is when the pages are needed most. Nothing can be changed meanwhile. Whom the provider vouches for
while the ledger takes nothing is let in to read, without a row, until it takes something again.
"""

import logging
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from flask import request, session
from flask_wtf.csrf import generate_csrf  # type: ignore[import-untyped]  # it has no types

from admin.monitoring.sign_in.oidc import Person, Provider, ProviderAwayError, RefusedError
from admin.monitoring.sign_in.owed import OwedNotes
from admin.monitoring.sign_in.tokens import TokenBox
from shared.domain.roles import Role, role_among
from shared.ledger import audit, sign_ins
from shared.ledger.db import POSTGRES_AWAY, Connection, Ledger
from shared.settings import Settings, is_private_to_browser

_log = logging.getLogger(__name__)

#: Seconds from sign-in to its end, whatever happens between.
LASTS_S = 8 * 3600
#: Seconds for which a reader's cookie is believed without a look at the ledger.
LOOK_S = 15
#: Seconds for which a role that nobody can confirm still lets somebody read.
UNCONFIRMED_S = 1800
#: Seconds over its time after which a check that another process took on counts as not done.
_CHECK_TAKES_S = 30

_KEY = "operator"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Operator:
    """Who is signed in. `doubt` says in words why the role is not sure; such a person may read."""

    session_id: UUID
    name: str
    role: Role
    doubt: str = ""

    @property
    def may_act(self) -> bool:
        """Whether this person may change something now."""
        return self.role.may_act and not self.doubt


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the cookie says; times are seconds of the epoch."""

    id: UUID
    name: str
    role: Role
    until: float
    looked: float
    #: Begun while the ledger took nothing: there is no row of it.
    unwritten: bool = False

    @classmethod
    def read(cls, found: object) -> Self | None:
        """Read the cookie's part; one of another version of this code is none."""
        try:
            given: Any = found
            return cls(
                UUID(given["id"]), given["name"], Role(given["role"]), float(given["until"]), float(given["looked"]),
                unwritten=bool(given.get("unwritten")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return None

    def write(self) -> None:
        """Put it into the cookie of this answer."""
        session[_KEY] = {
            "id": str(self.id), "name": self.name, "role": self.role, "until": self.until, "looked": self.looked,
            **({"unwritten": True} if self.unwritten else {}),
        }  # fmt: skip


class Sessions:
    """The sessions of one application; `provider` is that of single sign-on, None where there is none."""

    def __init__(self, settings: Settings, ledger: Ledger, provider: Provider | None) -> None:
        self._settings, self._ledger, self.provider = settings, ledger, provider
        self._box = TokenBox(settings.secret_key.get_secret_value()) if settings.secret_key else None
        #: Sign-ins that the audit is still to be told of.
        self.owed = OwedNotes(ledger)

    @property
    def signing_key(self) -> str:
        """What cookies are signed with. Without SECRET_KEY nobody can sign in, and each process makes its own."""
        key = self._settings.secret_key
        return key.get_secret_value() if key else secrets.token_hex(32)

    @property
    def environment(self) -> str:
        """What the installation is called on every page."""
        return self._settings.environment

    @property
    def is_secure(self) -> bool:
        """Whether browsers are to send the cookie over TLS alone: everywhere but on this machine itself."""
        url = self._settings.public_url
        return url is None or urlsplit(url).scheme == "https" or not is_private_to_browser(url)

    def begin(self, connection: Connection, *, name: str, role: Role, person: Person | None = None) -> None:
        """Sign this browser in under a new session; what it had before ends."""
        before = _Kept.read(session.get(_KEY))
        if before is not None:
            sign_ins.end(connection, before.id)
        session.clear()
        now = time.time()
        kept = _Kept(id=uuid4(), name=name, role=role, until=now + LASTS_S, looked=now)
        sign_ins.begin(
            connection,
            kept.id,
            operator=name,
            role=role,
            lasts_s=LASTS_S,
            subject=person.subject if person else None,
            tokens=self._box.close(person.tokens) if person and self._box else None,
        )
        self._keep(kept)

    def begin_unwritten(self, *, name: str, role: Role) -> None:
        """
        Sign this browser in while the ledger takes nothing: to read, for UNCONFIRMED_S at most.

        Only for whom the provider has just vouched. It ends as soon as the ledger takes something: then one signs in
        anew, which the ledger knows of.
        """
        session.clear()
        now = time.time()
        self._keep(_Kept(id=uuid4(), name=name, role=role, until=now + UNCONFIRMED_S, looked=now, unwritten=True))

    def _keep(self, kept: _Kept) -> None:
        session.permanent = True
        kept.write()
        generate_csrf()  # now, so that two pages opened at once do not each make their own

    def current(self) -> Operator | None:
        """
        Give who is signed in with this request; None if nobody is, or not any more.

        Raises: one of POSTGRES_AWAY when nobody could be asked for too long.
        """
        kept = _Kept.read(session.get(_KEY))
        if kept is None:
            return None
        now = time.time()
        if now >= kept.until:
            session.clear()
            return None
        if now - kept.looked < LOOK_S and request.method in SAFE_METHODS and not kept.unwritten:
            return Operator(kept.id, kept.name, kept.role)
        try:
            found = self._look(kept)
        except POSTGRES_AWAY:
            if now - kept.looked > UNCONFIRMED_S:
                if self.provider is not None:
                    return None  # the provider can vouch anew
                raise
            return Operator(kept.id, kept.name, kept.role, doubt="the ledger is away")
        if found is None:
            session.clear()
            return None
        if not found.doubt:
            replace(kept, role=found.role, looked=now).write()
        return found

    def end(self) -> None:
        """Sign this browser out. Raises: one of POSTGRES_AWAY; the browser is signed out all the same."""
        kept = _Kept.read(session.get(_KEY))
        session.clear()
        if kept is not None:
            with self._ledger.transaction() as connection:
                if sign_ins.end(connection, kept.id):
                    audit.record(
                        connection, operator=kept.name, action="sign out", target="pages", result="ok", session=kept.id
                    )

    def _look(self, kept: _Kept) -> Operator | None:
        """
        Look at the session's row, and ask the provider if it is time.

        Raises: one of POSTGRES_AWAY.
        """
        recheck_s = self._settings.oidc_recheck_ms / 1000
        with self._ledger.transaction() as connection:
            if kept.unwritten:
                sign_ins.end(connection, kept.id)  # of no row: it asks whether the ledger takes anything again
                return None
            found = sign_ins.find(connection, kept.id)
            is_due = found is not None and found.has_tokens and found.unchecked_s >= recheck_s
            check = sign_ins.begin_check(connection, kept.id, older_than_s=recheck_s) if is_due else None
        if found is None:
            return None
        operator = Operator(kept.id, found.operator, Role(found.role))
        if check is not None:
            return self._ask_provider(operator, check, unchecked_s=found.unchecked_s)
        if found.has_tokens and found.unchecked_s > recheck_s + _CHECK_TAKES_S:
            return self._unconfirmed(operator, unchecked_s=found.unchecked_s)
        return operator

    def _ask_provider(self, operator: Operator, check: sign_ins.Check, *, unchecked_s: float) -> Operator | None:
        tokens = self._box.open(check.tokens) if self._box else None
        if self.provider is None or self._box is None or tokens is None:
            return self._ended(operator, "what single sign-on was set up with has changed")
        try:
            person = self.provider.ask_again(check.subject, tokens)
        except ProviderAwayError as away:
            _log.warning("role_not_confirmed", extra={"operator": operator.name, "reason": str(away)})
            return self._unconfirmed(operator, unchecked_s=unchecked_s)
        except RefusedError as refused:
            return self._ended(operator, str(refused))
        role = self.role_of(person)
        if role is None:
            return self._ended(operator, "the role is gone")
        with self._ledger.transaction() as connection:
            sign_ins.confirm(connection, operator.session_id, role=role, tokens=self._box.close(person.tokens))
        return replace(operator, role=role)

    def role_of(self, person: Person) -> Role | None:
        """Give what a person's roles at the provider allow here."""
        return role_among(person.roles or (), admin=self._settings.admin_role, read=self._settings.admin_read_role)

    def _unconfirmed(self, operator: Operator, *, unchecked_s: float) -> Operator | None:
        if unchecked_s > UNCONFIRMED_S:
            return self._ended(operator, "the sign-in provider was away for too long")
        return replace(operator, doubt="the sign-in provider is away")

    def _ended(self, operator: Operator, why: str) -> Operator | None:
        with self._ledger.transaction() as connection:
            if sign_ins.end(connection, operator.session_id):
                audit.record(
                    connection,
                    operator=operator.name,
                    action="sign out",
                    target="pages",
                    result="ended",
                    reason=why,
                    session=operator.session_id,
                )
        return None
