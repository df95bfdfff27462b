"""Postgres and Redis for the tests: embedded servers, or those named by TEST_DATABASE_URL and TEST_REDIS_URL."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
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
POSTGRES_OPTIONS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


@contextmanager
def postgres_server(
    given_url: str | None, tether: Tether, *, options: Mapping[str, str] = POSTGRES_OPTIONS
) -> Iterator[str]:
    """Give the URL of a server where databases can be created; the embedded one starts empty and goes afterwards."""
    if given_url:
        yield given_url
        return
    with server_folder() as folder:
        server = Postgres(folder, tether=tether, account=server_account(), options=options)
        try:
            yield server.start()
        finally:
            server.stop()


@contextmanager
def redis_server(given_url: str | None, tether: Tether) -> Iterator[str]:
    """Give the URL of a Redis database that the tests may empty."""
    if given_url:
        yield given_url
        return
    with server_folder() as folder:
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
def server_folder() -> Iterator[Path]:
    """Give a folder that a server's account can enter; it is removed afterwards."""
    # Not pytest's own folders: those are closed to the account that servers run as when root runs the tests.
    asked = Path(tempfile.mkdtemp(prefix="tidings-test-"))
    real = make_private(asked, server_account())
    try:
        yield real
    finally:
        for folder in {asked, real}:
            shutil.rmtree(folder)
