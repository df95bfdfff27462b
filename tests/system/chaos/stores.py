"""A Postgres and a Redis of our own, as durable as in production, to be stopped, crashed, emptied and filled up."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGCONT, SIGQUIT, SIGSTOP
from uuid import uuid4

import psycopg
import redis
from psycopg import sql
from sqlalchemy.engine import make_url

from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
from shared.ledger.migrate import upgrade
from tests.support.servers import server_folder

#: What was committed without waiting for the disk stays off it for long: a crash undoes all that it may undo.
_POSTGRES_OPTIONS = {"wal_writer_delay": "10s"}
#: s; what an order to Redis may take, far above what a healthy one takes
_ORDER_S = 30.0


class Stores:
    """The two servers of a run and the faults they can have. Start and stop from the thread that made them."""

    def __init__(self, postgres: Postgres, valkey: Valkey) -> None:
        self._postgres, self._valkey = postgres, valkey
        self._server_url = postgres.url
        self.redis_url = valkey.url

    def make_database(self) -> str:
        """Give a database with the newest schema; it goes with the server."""
        name = f"chaos_{uuid4().hex}"
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        url = make_url(self._server_url).set(database=name).render_as_string(hide_password=False)
        upgrade(url)
        return url

    def stop_postgres(self) -> None:
        """Stop it as an administrator does: sessions are cut, a checkpoint is written."""
        self._postgres.stop()

    def start_postgres(self) -> None:
        self._postgres.start()

    def crash_postgres(self) -> None:
        """End it without a checkpoint, and let it recover: what was not flushed is gone."""
        process = self._postgres.process
        assert process is not None
        process.send_signal(SIGQUIT)
        process.wait()
        self._postgres.stop()
        self._postgres.start()

    def stop_redis(self, *, forget: bool) -> None:
        """Stop it; `forget`: as one without persistence, everything in it is gone."""
        if forget:
            self.flush()
        self._valkey.stop()

    def start_redis(self) -> None:
        self._valkey.start()

    def flush(self) -> None:
        """Empty Redis; one that is a replica at this moment refuses."""
        with suppress(redis.ReadOnlyError):
            self._order("FLUSHALL")

    def hang_redis(self, seconds: float) -> None:
        """Let Redis answer nobody for so long; it keeps what it is told meanwhile, and does it late."""
        self._order("CLIENT", "PAUSE", str(int(seconds * 1_000)), "ALL")

    def freeze_redis(self) -> None:
        """Stop its process in its tracks: commands wait in its sockets, and are done after `thaw_redis`."""
        assert self._valkey.process is not None
        self._valkey.process.send_signal(SIGSTOP)

    def thaw_redis(self) -> None:
        assert self._valkey.process is not None
        self._valkey.process.send_signal(SIGCONT)

    def fill_redis(self) -> None:
        """Let Redis refuse every command that needs memory."""
        self._order("CONFIG", "SET", "maxmemory", "1")

    def demote_redis(self) -> None:
        """Make Redis a read-only replica of a primary that is not there, as a failover does."""
        self._order("REPLICAOF", "127.0.0.1", "1")

    def heal_redis(self) -> None:
        """Take back what `fill_redis`, `demote_redis` and `hang_redis` did."""
        self._order("REPLICAOF", "NO", "ONE")
        self._order("CONFIG", "SET", "maxmemory", "0")

    def queued(self, queue: str) -> int:
        """How many messages wait in a queue."""
        with redis.Redis.from_url(self.redis_url, socket_timeout=_ORDER_S) as client:
            return int(client.llen(f"tidings:broker:{queue}"))

    def _order(self, *words: str) -> None:
        with redis.Redis.from_url(self.redis_url, socket_timeout=_ORDER_S) as client:
            client.execute_command(*words)


@contextmanager
def stores(tether: Tether) -> Iterator[Stores]:
    """Start both servers with their ordinary durability (fsync, full pages, append-only file)."""
    account = server_account()
    with server_folder(durable=True) as folder:
        postgres = Postgres(folder, tether=tether, account=account, options=_POSTGRES_OPTIONS)
        valkey = Valkey(folder, tether=tether, account=account)
        try:
            postgres.start()
            valkey.start()
            yield Stores(postgres, valkey)
        finally:
            valkey.stop()
            postgres.stop()
