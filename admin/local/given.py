"""
The stores that the environment names: are they ours after all, and do they answer?

A shell that read `.local/env` of an earlier run names the embedded servers of that run. They ended with it, and those
of the next run may have other ports.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from admin.local.place import SetupError
from admin.local.ports import LOOPBACK
from shared.ledger.db import conninfo

#: s; a server that is there answers at once
PATIENCE_S = 5
#: variable → where an embedded server keeps its password, as `place.make_private` arranges it
_PASSWORDS = {"DATABASE_URL": "postgres.password", "REDIS_URL": "valkey.password"}


def without_own(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Leave out the addresses of this folder's embedded servers: those are started, on whatever port is free now."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _PASSWORDS or not _is_own(value, _kept(folder, _PASSWORDS[name]))
    }


def check_database(url: str) -> None:
    """
    Connect once.

    Raises:
        SetupError: it is away or the address is none; the text names the host, never the password.
    """
    _check("DATABASE_URL", url, lambda: psycopg.connect(conninfo(url), connect_timeout=PATIENCE_S).close())


def check_redis(url: str) -> None:
    """As `check_database`, for REDIS_URL."""

    def ping() -> None:
        with redis.Redis.from_url(url, socket_connect_timeout=PATIENCE_S, socket_timeout=PATIENCE_S) as client:
            client.ping()

    _check("REDIS_URL", url, ping)


def _check(variable: str, url: str, ask: Callable[[], object]) -> None:
    remedy = f"Start that server or correct {variable}; without {variable}, `make up` starts one of its own."
    try:
        ask()
    except (psycopg.OperationalError, redis.RedisError) as fault:
        why = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise SetupError(f"{variable}: the server at {place_of(url)} cannot be used ({why}). {remedy}") from None
    except (ValueError, TypeError):  # redis-py hands unknown parameters on as arguments; the text may hold the address
        raise SetupError(f"{variable} is not an address that Redis understands. {remedy}") from None


def place_of(url: str) -> str:
    """Host and port of an address, without what is secret in it."""
    parts = urlsplit(url)
    with suppress(ValueError):  # a port that is no number
        return f"{parts.hostname or parts.path or 'no host'}{f':{parts.port}' if parts.port else ''}"
    return parts.hostname or "no host"


def _kept(folder: Path, name: str) -> str:
    for place in (folder, folder / "servers"):
        with suppress(OSError):
            return (place / name).read_text()
    return ""


def _is_own(url: str, password: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        return bool(password) and parts.hostname == LOOPBACK and parts.password == password
    return False
