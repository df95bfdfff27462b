"""A pool for what people look at: once the server did not answer, the next ones are told at once instead of waiting."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg_pool import PoolTimeout

from shared.ledger.db import Connection, Ledger, ServerSilentError

#: Seconds for which a server that did not answer is left alone; then one caller asks for all.
REST_S = 5.0
_NOT_ASKED = "not asked: the server did not answer a moment ago"


class RestingLedger(Ledger):
    """
    A pool whose `transaction()` fails at once while the server is known not to answer.

    That nobody got a connection in time because others have them all is no such case.
    """

    def __init__(self, url: str, *, size: int, **options: Any) -> None:
        super().__init__(url, size=size, **options)
        self._lock = threading.Lock()
        self._size, self._lent = size, 0
        self._ask_at: float | None = None  # on the monotonic clock; None: it answered when it was asked last

    @property
    def is_resting(self) -> bool:
        """Whether the server did not answer a moment ago, and is not asked now."""
        ask_at = self._ask_at
        return ask_at is not None and time.monotonic() < ask_at

    def refuse_while_away(self) -> None:
        """
        Find out whether the server answers: for who is about to ask it by another pool, and would wait longer there.

        Raises: one of POSTGRES_AWAY.
        """
        try:
            with self.transaction() as connection:
                connection.execute("SELECT 1")  # one that answered a moment ago is lent without being asked
        except PoolTimeout:
            if self.is_resting:  # otherwise it answers, and others have every connection
                raise

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """
        Lend a connection inside one transaction.

        Raises: one of POSTGRES_AWAY; at once where the server did not answer a moment ago.
        """
        with self._lock:
            if self.is_resting:
                raise PoolTimeout(_NOT_ASKED)
            if self._ask_at is not None:
                self._ask_at = time.monotonic() + REST_S  # this caller asks for all
        with self._asking() as connection:
            yield connection

    def ask(self) -> None:
        """
        Ask whether the server answers, resting or not.

        Raises: one of POSTGRES_AWAY.
        """
        with self._asking() as connection:
            connection.execute("SELECT 1")

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        try:
            with super().transaction() as connection, self._lending():
                yield connection
        except (ServerSilentError, PoolTimeout) as fault:
            with self._lock:
                if isinstance(fault, ServerSilentError) or self._lent < self._size:
                    self._ask_at = time.monotonic() + REST_S
            raise

    @contextmanager
    def _lending(self) -> Iterator[None]:
        """Count a connection that is lent: the pool has just seen it answer."""
        with self._lock:
            self._lent += 1
            self._ask_at = None
        try:
            yield
        finally:
            with self._lock:
                self._lent -= 1
