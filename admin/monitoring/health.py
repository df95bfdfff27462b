"""
`/healthz` and `/readyz`: is this process alive, and can it use its stores.

Neither asks for credentials and neither says more than the names of the stores. A platform restarts on the first and
routes by the second: a web process without Redis still accepts (the ledger is enough), so restarting it would help
nobody, but it is not ready in full and says so.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

import psycopg
import redis
from flask import Blueprint, Response, jsonify

from shared.coordination.redis import connect
from shared.ledger.db import conninfo
from shared.settings import Settings

_log = logging.getLogger(__name__)

#: Seconds a store has for its answer. Load balancers give a health check two to five.
BUDGET_S = 1.0
#: Seconds an answer is given again without asking: strangers may call this, and each look opens two connections.
_REMEMBERED_S = 1.0

Check = Callable[[], None]


class _Question:
    """One look at one store, in a daemon thread: a store that hangs for ever must not keep the process from ending."""

    def __init__(self, name: str, check: Check) -> None:
        self.ended = threading.Event()
        self.answered = False
        self._check = check
        threading.Thread(target=self._ask, name=f"readyz-{name}", daemon=True).start()

    def _ask(self) -> None:
        try:
            self._check()
            self.answered = True
        except (psycopg.Error, redis.RedisError, OSError) as fault:
            _log.warning("store_away", extra={"reason": type(fault).__name__})
        finally:
            self.ended.set()


class Readiness:
    """
    Asks every store at the same time, within one budget, at most once a second however many ask.

    A store that hangs keeps one thread; until that ends the store is away without being asked again.
    """

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._lock = threading.Lock()
        self._asked: dict[str, _Question] = {}
        self._known: dict[str, bool] = {}
        self._known_until = 0.0

    def look(self) -> dict[str, bool]:
        """Name of each store → whether it answered."""
        with self._lock:
            if time.monotonic() >= self._known_until:
                self._known = self._ask()
                self._known_until = time.monotonic() + _REMEMBERED_S
            return dict(self._known)

    def _ask(self) -> dict[str, bool]:
        hanging = {name for name, question in self._asked.items() if not question.ended.is_set()}
        fresh = [name for name in self._checks if name not in hanging]
        self._asked |= {name: _Question(name, self._checks[name]) for name in fresh}
        deadline = time.monotonic() + BUDGET_S
        for name in fresh:
            self._asked[name].ended.wait(max(0.0, deadline - time.monotonic()))
        return {name: name in fresh and self._asked[name].answered for name in self._checks}


def blueprint(settings: Settings) -> Blueprint:
    """The two pages, over the stores of these settings."""
    pages = Blueprint("health", __name__)
    database_url = settings.database_url.get_secret_value()
    redis_url = settings.redis_url.get_secret_value()
    readiness = Readiness({"postgres": lambda: _ask_postgres(database_url), "redis": lambda: _ask_redis(redis_url)})

    @pages.get("/healthz")
    def healthz() -> Response:
        return _uncached(jsonify(status="alive"))

    @pages.get("/readyz")
    def readyz() -> tuple[Response, int]:
        stores = readiness.look()
        away = sorted(name for name, answered in stores.items() if not answered)
        body = jsonify(
            status="not ready" if away else "ready",
            stores={name: "ok" if answered else "away" for name, answered in stores.items()},
        )
        return _uncached(body), 503 if away else 200

    return pages


def _ask_postgres(url: str) -> None:
    # libpq raises a connect_timeout of 1 to 2; the caller's budget is what counts.
    with psycopg.connect(conninfo(url), connect_timeout=2, application_name="tidings readyz") as connection:
        connection.execute("SELECT 1")


def _ask_redis(url: str) -> None:
    client: redis.Redis = connect(url, timeout_s=BUDGET_S, max_connections=1)
    try:
        client.ping()
    finally:
        client.close()


def _uncached(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response
