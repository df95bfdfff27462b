"""
Tenants and their API keys.

A key is 256 bits of randomness, so its SHA-256 is all that need be kept: a slow password hash defends
guessable secrets, and nobody guesses this one. A look-up by hash reveals nothing through timing either, since
a caller cannot choose the digest's bytes. Six characters of checksum let anybody, secret scanners included,
tell a real key from a typing error without asking.
"""

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import datetime

from shared.domain.states import Mode
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: Characters: log2(62) × 43 = 256 bits.
_RANDOM_LENGTH = 43
#: Characters that hold a CRC-32 in base 62.
_CHECKSUM_LENGTH = 6
#: Characters of the random part shown in lists, so that people can tell keys apart.
_SHOWN_LENGTH = 6
_KEY = re.compile(rf"tid_(?:live|test)_[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECKSUM_LENGTH}}}", re.ASCII)
_MAX_NAME_LENGTH = 200

_INSERT_TENANT = statement("insert_tenant")
_SELECT_TENANTS = statement("select_tenants")
_SELECT_TENANT_BY_NAME = statement("select_tenant_by_name")
_INSERT_API_KEY = statement("insert_api_key")
_SELECT_API_KEYS = statement("select_api_keys")
_REVOKE_API_KEY = statement("revoke_api_key")
_SELECT_CALLER = statement("select_caller")
_TOUCH_API_KEY = statement("touch_api_key")
_BIND_API_KEY = statement("bind_api_key")
_OWN_API_KEY = statement("own_api_key")


class TenantError(ValueError):
    """The tenant or key cannot be made as asked; the text says why."""


class BoundElsewhereError(TenantError):
    """The key belongs to another tenant."""


@dataclass(frozen=True)
class Tenant:
    """An application that hands in sends; the senders are its defaults."""

    id: int
    name: str
    default_region: str | None
    email_from: str | None
    sms_from: str | None
    created_at: datetime


@dataclass(frozen=True)
class ApiKey:
    """What may be shown of a key; `prefix` is its beginning."""

    id: int
    name: str
    mode: Mode
    prefix: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class Caller:
    """Whom an authenticated request speaks for. `tenant_id` is empty for a load-test credential not bound yet."""

    key_id: int
    mode: Mode
    tenant_id: int | None
    tenant_name: str | None
    default_region: str | None
    email_from: str | None
    sms_from: str | None


def create_tenant(
    connection: Connection,
    *,
    name: str,
    default_region: str | None = None,
    email_from: str | None = None,
    sms_from: str | None = None,
) -> int:
    """
    Create a tenant and return its id.

    Raises: TenantError for a name that is taken or empty, or a region that is not two capital letters.
    """
    _check_name(name)
    if default_region is not None and not re.fullmatch("[A-Z]{2}", default_region):
        raise TenantError("a region is two capital letters, such as CA")
    row = connection.execute(
        _INSERT_TENANT,
        {"name": name, "default_region": default_region, "email_from": email_from, "sms_from": sms_from},
    ).fetchone()
    if row is None:
        raise TenantError(f"there is already a tenant named {name}")
    return int(row[0])


def list_tenants(connection: Connection) -> list[Tenant]:
    """Every tenant, oldest first."""
    return [Tenant(*row) for row in connection.execute(_SELECT_TENANTS)]


def find_tenant(connection: Connection, name: str) -> Tenant | None:
    """The tenant of that name, if there is one."""
    row = connection.execute(_SELECT_TENANT_BY_NAME, {"name": name}).fetchone()
    return Tenant(*row) if row else None


def create_key(connection: Connection, *, tenant_id: int | None, mode: Mode, name: str) -> tuple[int, str]:
    """
    Make a key and return its id and its secret, which can never be shown again.

    Raises: TenantError for an empty or overlong name.
    """
    _check_name(name)
    secret = new_secret(mode)
    row = connection.execute(
        _INSERT_API_KEY,
        {
            "tenant_id": tenant_id,
            "name": name,
            "mode": mode.value,
            "prefix": secret[: len(f"tid_{mode.value}_") + _SHOWN_LENGTH],
            "hash": _digest(secret),
        },
    ).fetchone()
    assert row is not None  # noqa: S101  # an INSERT without ON CONFLICT returns its row or raises
    return int(row[0]), secret


def list_keys(connection: Connection, tenant_id: int) -> list[ApiKey]:
    """The keys of a tenant, revoked ones included, oldest first."""
    rows = connection.execute(_SELECT_API_KEYS, {"tenant_id": tenant_id})
    return [ApiKey(row[0], row[1], Mode(row[2]), *row[3:]) for row in rows]


def revoke_key(connection: Connection, key_id: int) -> bool:
    """Revoke a key from the next request on; False when there is no such key or it was revoked before."""
    return connection.execute(_REVOKE_API_KEY, {"id": key_id}).fetchone() is not None


def authenticate(connection: Connection, secret: str) -> Caller | None:
    """
    Who holds this key; None for a key that is malformed, unknown or revoked.

    Nothing is remembered between requests: a revocation acts at once, in every process.
    """
    if not looks_like_key(secret):
        return None
    row = connection.execute(_SELECT_CALLER, {"hash": _digest(secret)}).fetchone()
    if row is None or row[3] is not None:
        return None
    if row[8]:
        connection.execute(_TOUCH_API_KEY, {"id": row[0]})
    return Caller(row[0], Mode(row[2]), row[1], row[4], row[5], row[6], row[7])


def own_key(connection: Connection, tenant_id: int) -> int:
    """The id of the key that sends of our own making are handed in under; nobody can use it to call the API."""
    row = connection.execute(_OWN_API_KEY, {"tenant_id": tenant_id}).fetchone()
    if row is None:  # made by another transaction this very moment: it is there for the next statement
        row = connection.execute(_OWN_API_KEY, {"tenant_id": tenant_id}).fetchone()
    assert row is not None  # noqa: S101  # inserted here or by whoever won the race; keys are never deleted
    return int(row[0])


def bind_key(connection: Connection, *, key_id: int, tenant_name: str) -> int:
    """
    Bind a key to the tenant of that name, creating it if there is none, and return the tenant's id.

    Raises: BoundElsewhereError for a key of another tenant; TenantError for a bad name.
    """
    tenant = find_tenant(connection, tenant_name)
    if tenant is None:
        _check_name(tenant_name)
        connection.execute(
            _INSERT_TENANT, {"name": tenant_name, "default_region": None, "email_from": None, "sms_from": None}
        )
        tenant = find_tenant(connection, tenant_name)
        assert tenant is not None  # noqa: S101  # inserted here or by whoever won the race; tenants are never deleted
    if connection.execute(_BIND_API_KEY, {"id": key_id, "tenant_id": tenant.id}).fetchone() is None:
        raise BoundElsewhereError("this key is bound to another tenant")
    return tenant.id


def looks_like_key(secret: str) -> bool:
    """Whether the text has the form and the checksum of a key; says nothing about its being known."""
    return bool(_KEY.fullmatch(secret)) and _checksum(secret[:-_CHECKSUM_LENGTH]) == secret[-_CHECKSUM_LENGTH:]


def new_secret(mode: Mode) -> str:
    """Make the text of a key; `create_key` also stores it."""
    body = f"tid_{mode.value}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return body + _checksum(body)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode("ascii"))
    characters = []
    for _ in range(_CHECKSUM_LENGTH):
        number, remainder = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[remainder])
    return "".join(reversed(characters))


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise TenantError(f"a name has 1 to {_MAX_NAME_LENGTH} printable characters")
