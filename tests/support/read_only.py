"""A Postgres that takes no writes, as after a failover or in a supplier's maintenance."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from shared.ledger.db import conninfo


@contextmanager
def read_only(database_url: str) -> Iterator[None]:
    """Everybody's sessions of this database end, and those that begin within the block may only read."""
    with psycopg.connect(conninfo(database_url), autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        try:
            _cut(connection, sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            yield
        finally:
            _cut(connection, sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


def _cut(connection: psycopg.Connection, change: sql.Composed) -> None:
    connection.execute(change)
    connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
