"""
Postgres and Redis for the tests: embedded servers, or those named by TEST_DATABASE_URL and TEST_REDIS_URL.

Nearly every test has a database of its own, which is some 500 files: where there is room, the servers keep theirs in
shared memory, where files are made sooner than on a disk.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from admin.local.place import make_private, server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey

#: The tests kill processes, never the machine: what the kernel has is safe.
POSTGRES_OPTIONS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_wal_size": "256MB"}

_MEMORY = Path("/dev/shm")
#: bytes; those of the store tests were seen to use 250 MB
_ROOM = 2 << 30


@contextmanager
def postgres_server(given_url: str | None, tether: Tether, *, durable: bool = False) -> Iterator[str]:
    """Give the URL of a server where databases can be created; the embedded one starts empty and goes afterwards."""
    if given_url:
        yield given_url
        return
    with server_folder(durable=durable) as folder:
        options = {} if durable else POSTGRES_OPTIONS
        server = Postgres(folder, tether=tether, account=server_account(), options=options)
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def redis_server(given_url: str | None, tether: Tether, *, durable: bool = False) -> Iterator[str]:
    """Give the URL of a Redis database that the tests may empty."""
    if given_url:
        yield given_url
        return
    with server_folder(durable=durable) as folder:
        server = Valkey(folder, tether=tether, account=server_account())
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def temporary_database(server_url: str, *, template: str | None = None) -> Iterator[str]:
    """Create a database, a copy of `template` if given, and drop it afterwards, whoever is still connected."""
    url = make_url(server_url)
    name = f"test_{uuid4().hex}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template:
        create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(make_url(template).database or ""))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(create)
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def server_folder(*, durable: bool = False) -> Iterator[Path]:
    """Give a folder that a server's account can enter, on a disk if it is to be `durable`; it is removed afterwards."""
    # Not pytest's own folders: those are closed to the account that servers run as when root runs the tests.
    asked = Path(tempfile.mkdtemp(prefix="tidings-test-", dir=None if durable else _in_memory()))
    real = make_private(asked, server_account())
    try:
        yield real
    finally:
        for folder in {asked, real}:
            shutil.rmtree(folder)


def _in_memory() -> Path | None:
    """Where files are kept in memory, or None where there is too little of it or nobody may write there."""
    try:
        if shutil.disk_usage(_MEMORY).free >= _ROOM and _available() >= _ROOM and os.access(_MEMORY, os.W_OK):
            return _MEMORY
    except OSError:
        pass
    return None


def _available() -> int:
    """Bytes of memory that programs can still have."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
