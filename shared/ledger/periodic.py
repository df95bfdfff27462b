"""Ticks of the periodic jobs, claimed in Postgres so that any number of clocks is safe."""

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_CLAIM = statement("claim_tick")


def claim_tick(connection: Connection, *, name: str, slot: int, interval_ms: int) -> int | None:
    """
    Claim the tick of a job that began at `slot`, ms since 1970; None when somebody has it or a newer one.

    Gives when the tick began by the ledger's clock, where that of the caller is wrong by more than two ticks.
    """
    row = connection.execute(_CLAIM, {"name": name, "slot": slot, "interval_ms": interval_ms}).fetchone()
    return None if row is None else int(row[0])
