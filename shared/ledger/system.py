"""How the machinery is, read from the ledger: the server itself, passes and ticks, releases, newest errors."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.ledger.db import Connection
from shared.ledger.queries import statement
from shared.ledger.recovery import Pass

_RELEASES = statement("select_releases")
_HEALTH = statement("select_ledger_health")
_RECOVERY = statement("select_recovery_state")
_SUMS = statement("sum_recoveries")
_RECOVERIES = statement("select_recoveries")
_ERRORS = statement("select_newest_errors")
_RATES = statement("select_provider_rates")


@dataclass(frozen=True, slots=True)
class LedgerHealth:
    """One look at the server; `now` is its clock, `schema` the newest migration it has."""

    now: datetime
    version: str
    max_connections: int
    connections: int
    schema: str


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """The newest pass of the reconciler (None where there was none), and the newest tick of any clock."""

    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    error: str | None
    unaccounted: dict[str, Any] | None
    last_tick_at: datetime | None
    first_send_at: datetime | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """What passes and ticks of the last hour did about one kind."""

    kind: str
    found: int
    retried: int
    requeued: int
    given_up: int


@dataclass(frozen=True, slots=True)
class ProviderError:
    """The newest failure of a provider; the detail is masked."""

    provider: str
    at: datetime
    outcome: str
    code: str | None
    detail: str | None


def releases(connection: Connection) -> dict[str, datetime]:
    """When operators last let go of a provider or a queue within the hour, by the audit's target."""
    return dict(connection.execute(_RELEASES).fetchall())


def ledger_health(connection: Connection) -> LedgerHealth:
    """Look at the server."""
    row = connection.execute(_HEALTH).fetchone()
    assert row is not None  # noqa: S101  # it has no FROM
    return LedgerHealth(*row)


def recovery_state(connection: Connection) -> RecoveryState:
    """When the reconciler and the clock last did anything."""
    row = connection.execute(_RECOVERY).fetchone()
    assert row is not None  # noqa: S101  # one row, whatever the tables hold
    return RecoveryState(*row)


def recovered(connection: Connection) -> list[Recovered]:
    """The last hour's recoveries by kind; kinds without any are left out."""
    return [Recovered(*row) for row in connection.execute(_SUMS)]


def recoveries(connection: Connection, *, limit: int) -> list[Pass]:
    """The newest passes and ticks that did something, or ended early, within a day."""
    return [Pass(*row) for row in connection.execute(_RECOVERIES, {"limit": limit})]


def newest_errors(connection: Connection) -> dict[str, ProviderError]:
    """The newest failure of each provider that failed lately, by its name."""
    return {row[0]: ProviderError(*row) for row in connection.execute(_ERRORS)}


def provider_rates(connection: Connection) -> dict[str, float]:
    """What each provider took per minute in the last five full minutes, by its name; live deliveries."""
    return dict(connection.execute(_RATES).fetchall())
