"""
Idempotency keys: a submission repeated under the same key gets the first answer and makes no second send.

Source: draft-ietf-httpapi-idempotency-key-header §2.6–2.7. A claim is committed before the work begins, so
that a second request sees it; the answer is committed together with the send, so that neither is without
the other.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_CLAIM = statement("claim_idempotency_key")
_SELECT = statement("select_idempotency_key")
_ANSWER = statement("answer_idempotency_key")
_RELEASE = statement("release_idempotency_key")
_FORGET = statement("forget_idempotency_keys")


@dataclass(frozen=True)
class Claim:
    """A key held by one request; `owner` is its fence."""

    tenant_id: int
    key: str
    owner: UUID


class KeyReusedError(Exception):
    """The key was used with another body."""


class KeyBusyError(Exception):
    """A request with this key and body is still running."""


class ClaimLostError(Exception):
    """Another request took the key over, because this one took longer than its claim."""


def claim(
    connection: Connection, wanted: Claim, *, fingerprint: bytes, lock: timedelta, ttl: timedelta
) -> dict[str, Any] | None:
    """
    Claim the key, or return the answer already given to the same body.

    `lock` is how long a request that dies may block its repeats; `ttl` is how long an answer is remembered.

    Raises: KeyReusedError, KeyBusyError.
    """
    parameters = {
        "tenant_id": wanted.tenant_id,
        "key": wanted.key,
        "fingerprint": fingerprint,
        "owner": wanted.owner,
        "lock": lock,
        "ttl": ttl,
    }
    for _ in range(3):
        if connection.execute(_CLAIM, parameters).fetchone():
            return None
        row = connection.execute(_SELECT, {"tenant_id": wanted.tenant_id, "key": wanted.key}).fetchone()
        if row is None:
            continue  # its holder failed and gave it back between the two statements
        if row[0] != fingerprint:
            raise KeyReusedError
        if row[1] is not None:
            return dict(row[1])
        break
    raise KeyBusyError


def answer(connection: Connection, held: Claim, *, send_id: UUID, body: dict[str, Any]) -> None:
    """
    Keep the answer; call in the transaction that stores the send.

    Raises: ClaimLostError: roll back, somebody else stores this submission.
    """
    row = connection.execute(
        _ANSWER,
        {
            "tenant_id": held.tenant_id,
            "key": held.key,
            "owner": held.owner,
            "send_id": send_id,
            "answer": Jsonb(body),
        },
    ).fetchone()
    if row is None:
        raise ClaimLostError


def release(connection: Connection, held: Claim) -> None:
    """Give a key back after a request that stored nothing; does nothing once it is answered."""
    connection.execute(_RELEASE, {"tenant_id": held.tenant_id, "key": held.key, "owner": held.owner})


def forget(connection: Connection, *, ttl: timedelta, limit: int) -> int:
    """Delete at most `limit` keys older than `ttl` and return how many went."""
    return connection.execute(_FORGET, {"ttl": ttl, "limit": limit}).rowcount
