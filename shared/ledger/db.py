"""Connections to Postgres: one pool per process, timeouts on every session, transactions by `with`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

#: Milliseconds. A statement of the request path or a worker that takes longer is a fault, not patience.
STATEMENT_TIMEOUT_MS = 60_000
#: Milliseconds. Nobody may keep a snapshot open while idle: dead rows could not be cleaned up.
IDLE_IN_TRANSACTION_TIMEOUT_MS = 60_000
#: Milliseconds without an acknowledgement after which a connection is dead: a host that vanished sends no reset.
TCP_USER_TIMEOUT_MS = 15_000

#: Seconds after which the pool gives an attempt to connect up; the next caller begins another. Within an attempt it waits
#: twice as long each time, by default for 300 s: that a server is back after a minute was noticed a minute later.
_RECONNECT_S = 2.0

#: Every statement of the ledger finds its rows by key. Right after a bulk load the statistics say nothing of the
#: new rows, and a hash or merge join would read a whole send to find the hundred rows of a window.
_SESSION = "-c timezone=UTC -c jit=off -c enable_hashjoin=off -c enable_mergejoin=off"

Connection = psycopg.Connection[tuple[Any, ...]]
#: Postgres is away, restarting or shedding us; what was asked may or may not have been done.
POSTGRES_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)


def conninfo(url: str) -> str:
    """A URL libpq understands, from `postgres://` or `postgresql://`."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))


def sqlalchemy_url(url: str) -> str:
    """The same address for SQLAlchemy, naming the psycopg 3 driver."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql+psycopg"))


#: Numbers of params come back as they were given: 1.10 stays 1.10.
_decode = json.JSONDecoder(parse_float=Decimal).decode


def _loads(data: str | bytes) -> Any:
    return _decode(data if isinstance(data, str) else data.decode())


def _configure(connection: Connection) -> None:
    set_json_loads(_loads, connection)


@contextmanager
def together(connection: Connection) -> Iterator[None]:
    """
    Make the statements of a block one transaction: that of the caller, or one of their own under `autocommit`.

    (psycopg's `transaction()` would end a caller's transaction that has not run a statement yet.)
    """
    if connection.autocommit:
        with connection.transaction():
            yield
    else:
        yield


class Ledger:
    """
    The pool of one process.

    `patience_s` is how long a caller waits for a connection. Connections are checked before use (a restarted
    Postgres costs nobody an error), rolled back and reset after it. `transaction()` commits at the end of its
    block and rolls back on an exception.
    """

    def __init__(self, url: str, *, size: int, name: str, patience_s: float = 10.0) -> None:
        self.pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo(url),
            min_size=0,
            max_size=size,
            open=False,
            timeout=patience_s,
            max_idle=120.0,
            reconnect_timeout=_RECONNECT_S,
            check=ConnectionPool.check_connection,
            configure=_configure,
            name=name,
            kwargs={
                "application_name": name,
                "connect_timeout": 5,
                "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS}"
                f" -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} {_SESSION}",
                "keepalives_idle": 30,
                "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
            },
        )

    def open(self) -> None:
        """Start the pool; does not wait for Postgres."""
        self.pool.open(wait=False)

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """
        Lend a connection inside one transaction.

        Raises: psycopg.OperationalError or psycopg_pool.PoolTimeout when Postgres is away.
        """
        with self.pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction_later_durable(self) -> Iterator[Connection]:
        """
        Like `transaction`, without waiting for the disk: a crash of the server may undo it.

        Only for what the next ordinary commit of the same thread makes durable in time: Postgres flushes its
        log in order.
        """
        with self.pool.connection() as connection:
            connection.execute("SET LOCAL synchronous_commit = off")
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Lend a connection whose every statement is its own transaction: one round trip each."""
        with self.pool.connection() as connection:
            connection.autocommit = True
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.autocommit = False
