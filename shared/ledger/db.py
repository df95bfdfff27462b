"""
Connections to Postgres: one pool per process, timeouts on every session, transactions by `with`.

**A server that hangs.** A killed server resets its connections and a vanished host fails TCP_USER_TIMEOUT_MS; a frozen
one (SIGSTOP, a dead disk) does neither, and statement_timeout is the server's to keep. So every wait for it is bounded
here: 5 s for a new connection, _CHECK_S for the check before a loan, and for a statement under way its own time-out and
_GRACE_S, after which it may or may not have been done. All of these are among POSTGRES_AWAY.
"""

import json
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

#: Milliseconds. A statement of the request path or a worker that takes longer is a fault, not patience.
STATEMENT_TIMEOUT_MS = 60_000
#: Milliseconds. Nobody may keep a snapshot open while idle: dead rows could not be cleaned up.
IDLE_IN_TRANSACTION_TIMEOUT_MS = 60_000
#: Milliseconds without an acknowledgement after which a connection is dead: a host that vanished sends no reset.
TCP_USER_TIMEOUT_MS = 15_000

#: Seconds after which the pool gives an attempt to connect up; the next caller begins another. Within an attempt it
#: waits twice as long each time, by default for 300 s: that a server is back after a minute was noticed a minute later.
_RECONNECT_S = 2.0

#: Seconds in which a server that is not frozen answers an empty query, loaded as it may be.
_CHECK_S = 2.0
#: Seconds a cancelled statement's answer may take to arrive after its time-out.
_GRACE_S = 5.0
#: Seconds for which a connection that has just answered is lent without asking it again: a round trip less for each
#: loan of a busy process. Kept short, since a statement given to a server frozen meanwhile waits its whole time-out.
_FRESH_S = 0.2
#: Seconds between two looks at signals while waiting, psycopg's own.
_WAIT_INTERVAL_S = 0.1

#: Every statement of the ledger finds its rows by key. Right after a bulk load the statistics say nothing of the
#: new rows, and a hash or merge join would read a whole send to find the hundred rows of a window.
_SESSION = "-c timezone=UTC -c jit=off -c enable_hashjoin=off -c enable_mergejoin=off"

Connection = psycopg.Connection[tuple[Any, ...]]
#: Postgres is away, restarting, read-only (a failover, maintenance) or shedding us; what was asked may or may not have
#: been done. The driver counts the last two among its InternalErrors.
POSTGRES_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    PoolTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


#: A row, or what was to become of it, breaks a rule of the ledger: a fault of ours, or a hand. It must keep no other
#: row from its turn.
ROW_BROKEN = (psycopg.DataError, psycopg.IntegrityError)


def conninfo(url: str) -> str:
    """A URL libpq understands, from `postgres://` or `postgresql://`."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql"))


def sqlalchemy_url(url: str) -> str:
    """The same address for SQLAlchemy, naming the psycopg 3 driver."""
    return urlunsplit(urlsplit(url)._replace(scheme="postgresql+psycopg"))


class ServerSilentError(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


#: Numbers of params come back as they were given: 1.10 stays 1.10.
_decode = json.JSONDecoder(parse_float=Decimal).decode


def _loads(data: str | bytes) -> Any:
    return _decode(data if isinstance(data, str) else data.decode())


class _BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when the server does not answer within `patience_s`."""

    patience_s = STATEMENT_TIMEOUT_MS / 1000 + _GRACE_S
    #: When the server answered last, on the monotonic clock.
    heard_at = float("-inf")

    def wait(self, gen: PQGen[RV], interval: float = _WAIT_INTERVAL_S, timeout: float | None = None) -> RV:
        """
        Wait for an answer, as psycopg does for whatever it asks.

        Raises: ServerSilentError when none came in time.
        """
        until = time.monotonic() + (self.patience_s if timeout is None else timeout)
        try:
            return super().wait(self._note(gen), interval, max(until - time.monotonic(), 0))
        except psycopg.OperationalError as error:
            if time.monotonic() < until or error.sqlstate is not None or self.closed:
                raise
            self.close()  # an answer that came late would be taken for that of the next statement
            raise ServerSilentError("the server does not answer") from error

    def _note(self, gen: PQGen[RV]) -> PQGen[RV]:
        """Run `gen` and note an answer; one that never waits (the end of an empty transaction) has heard nothing."""
        try:
            wanted = next(gen)
        except StopIteration as done:
            return cast("RV", done.value)
        while True:
            try:
                wanted = gen.send((yield wanted))
            except StopIteration as done:
                self.heard_at = time.monotonic()
                return cast("RV", done.value)

    def is_silent(self) -> bool:
        """Whether nothing has arrived that nobody asked for, such as the end of the connection."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


def _check(connection: _BoundedConnection) -> None:
    """Ask a connection that is about to be lent whether it still works; raises psycopg.OperationalError."""
    if time.monotonic() - connection.heard_at < _FRESH_S and connection.is_silent():
        return
    patience_s, connection.patience_s = connection.patience_s, _CHECK_S
    try:
        ConnectionPool.check_connection(connection)
    finally:
        connection.patience_s = patience_s


def bounded_connection(url: str, *, name: str, statement_timeout_ms: int) -> Connection:
    """Open a connection of one's own for short reads; every wait for the server ends (see above)."""
    connection = _BoundedConnection.connect(
        conninfo(url),
        application_name=name,
        connect_timeout=5,
        options=f"-c statement_timeout={statement_timeout_ms} {_SESSION}",
        tcp_user_timeout=TCP_USER_TIMEOUT_MS,
    )
    connection.patience_s = statement_timeout_ms / 1000 + 1.0
    return connection


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

    `patience_s` is how long a caller waits for a connection, and _CHECK_S more where the server hangs;
    `statement_s` how long for a statement, which the server itself cancels after `statement_timeout_ms`. Connections
    are checked before use (a restarted Postgres costs nobody an error), rolled back and reset after it.
    `transaction()` commits at the end of its block and rolls back on an exception.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int,
        name: str,
        patience_s: float = 10.0,
        statement_s: float = _BoundedConnection.patience_s,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    ) -> None:
        def configure(connection: _BoundedConnection) -> None:
            set_json_loads(_loads, connection)
            connection.patience_s = statement_s

        self.pool: ConnectionPool[_BoundedConnection] = ConnectionPool(
            conninfo(url),
            connection_class=_BoundedConnection,
            min_size=0,
            max_size=size,
            open=False,
            timeout=patience_s,
            max_idle=120.0,
            reconnect_timeout=_RECONNECT_S,
            check=_check,
            configure=configure,
            name=name,
            kwargs={
                "application_name": name,
                "connect_timeout": 5,
                "options": f"-c statement_timeout={statement_timeout_ms}"
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
