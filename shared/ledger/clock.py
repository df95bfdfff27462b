"""
The ledger's clock, for whatever is compared with its times.

Processes have clocks of their own, and one that is an hour wrong must neither shorten a backoff nor make an absence
believed before its time.
"""

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_NOW = statement("ledger_clock")


@dataclass(frozen=True, slots=True)
class LedgerClock:
    """Goes on from a moment that the ledger named just now, by this machine's monotonic clock."""

    named: datetime
    _heard_at: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """What the ledger would say now, or some milliseconds less."""
        return self.named + timedelta(seconds=time.monotonic() - self._heard_at)


def ledger_now(connection: Connection) -> datetime:
    """The ledger's clock, as of the transaction: what it is compared with was written by it."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None  # noqa: S101  # a SELECT without FROM has one row
    moment: datetime = row[0]
    return moment
