"""Who is signed in to the pages, and the one-time links that sign somebody in."""

from dataclasses import dataclass
from uuid import UUID

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_INSERT_LINK = statement("insert_sign_in_link")
_USE_LINK = statement("use_sign_in_link")
_SELECT_LINK = statement("select_sign_in_link")
_INSERT = statement("insert_operator_session")
_SELECT = statement("select_operator_session")
_BEGIN_CHECK = statement("begin_session_check")
_CONFIRM = statement("confirm_operator_session")
_END = statement("end_operator_session")


@dataclass(frozen=True, slots=True)
class SpentLink:
    """A link that opens nothing any more."""

    operator: str
    was_used: bool


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that lasts. `unchecked_s` is how long ago the provider last confirmed the role, in seconds."""

    operator: str
    role: str
    has_tokens: bool
    unchecked_s: float


@dataclass(frozen=True, slots=True)
class Check:
    """What the provider is asked with: whose role, and the tokens as they were given to `begin`."""

    subject: str
    tokens: bytes


def create_link(connection: Connection, token_hash: bytes, *, operator: str, lasts_s: int) -> None:
    """Keep a new link, for its one use within `lasts_s` seconds."""
    connection.execute(_INSERT_LINK, {"token_hash": token_hash, "operator": operator, "lasts_s": lasts_s})


def use_link(connection: Connection, token_hash: bytes) -> str | None:
    """Use a link up and give the operator it was made for; None if it is unknown, used or too old."""
    row = connection.execute(_USE_LINK, {"token_hash": token_hash}).fetchone()
    return None if row is None else str(row[0])


def spent_link(connection: Connection, token_hash: bytes) -> SpentLink | None:
    """Tell why `use_link` gave None; None if there never was such a link, or it is forgotten."""
    row = connection.execute(_SELECT_LINK, {"token_hash": token_hash}).fetchone()
    return None if row is None else SpentLink(operator=row[0], was_used=row[1])


def begin(
    connection: Connection,
    session_id: UUID,
    *,
    operator: str,
    role: str,
    lasts_s: int,
    subject: str | None = None,
    tokens: bytes | None = None,
) -> None:
    """Begin a session; with `tokens` its role has to be confirmed again and again."""
    facts = {"id": session_id, "operator": operator, "role": role, "lasts_s": lasts_s}
    connection.execute(_INSERT, {**facts, "subject": subject, "tokens": tokens})


def find(connection: Connection, session_id: UUID) -> SignedIn | None:
    """Find a session; None if it has ended, is too old, or never was."""
    row = connection.execute(_SELECT, {"id": session_id}).fetchone()
    return None if row is None else SignedIn(*row)


def begin_check(connection: Connection, session_id: UUID, *, older_than_s: float) -> Check | None:
    """Take it on to confirm a role; None if it was confirmed since, or somebody is at it."""
    row = connection.execute(_BEGIN_CHECK, {"id": session_id, "older_than_s": older_than_s}).fetchone()
    return None if row is None else Check(*row)


def confirm(connection: Connection, session_id: UUID, *, role: str, tokens: bytes) -> None:
    """Note that the provider still gives the person this role."""
    connection.execute(_CONFIRM, {"id": session_id, "role": role, "tokens": tokens})


def end(connection: Connection, session_id: UUID) -> bool:
    """End a session; False if it had ended."""
    return connection.execute(_END, {"id": session_id}).fetchone() is not None
