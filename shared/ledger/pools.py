"""Whether Postgres has connections for the whole fleet: asked at start-up, since a fleet that is too big fails late."""

import logging
from dataclasses import dataclass

from shared.ledger.db import Connection
from shared.ledger.queries import statement
from shared.settings import Settings

_log = logging.getLogger(__name__)
_LIMIT = statement("select_connection_limit")

#: Connections of a gunicorn worker beside its pool: the admin pages' reads, by name and through the ORM.
_PAGES = 4 + 2
#: Connections that commands and people need beside the fleet: a release, a pass by hand, psql.
_SPARE = 5


@dataclass(frozen=True, slots=True)
class Demand:
    """Most connections the configured fleet opens, by process, and what the server gives to others than superusers."""

    by_process: dict[str, int]
    limit: int

    @property
    def most(self) -> int:
        """Over all processes, with a few for commands and people."""
        return sum(self.by_process.values()) + _SPARE

    @property
    def fits(self) -> bool:
        """Whether the server has enough."""
        return self.most <= self.limit


def demand(connection: Connection, settings: Settings) -> Demand:
    """Add up the pools of the fleet that FLEET describes, and ask the server for its limit."""
    each = {
        "web": settings.web_workers * (settings.db_pool_size + _PAGES),
        "clock": 1,
    }
    by_process = {}
    for entry in settings.fleet.split():
        name, count = entry.split("=")
        by_process[name] = int(count) * each.get(name, settings.db_pool_size)
    row = connection.execute(_LIMIT).fetchone()
    assert row is not None  # noqa: S101  # the statement always gives a row
    return Demand(by_process, int(row[0]))


def warn_if_short(connection: Connection, settings: Settings) -> None:
    """Write a warning with the numbers when the fleet may open more connections than the server gives."""
    needed = demand(connection, settings)
    if not needed.fits:
        _log.warning(
            "postgres_connections_short",
            extra={"needed": needed.most, "limit": needed.limit, "by_process": needed.by_process},
        )
