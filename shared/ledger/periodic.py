"""Ticks of the periodic jobs, claimed in Postgres so that any number of clocks is safe."""

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_CLAIM = statement("claim_tick")


def claim_tick(connection: Connection, *, name: str, slot: int) -> bool:
    """Claim the tick of a job that began at `slot`, ms since 1970; False when somebody has it or a newer one."""
    return connection.execute(_CLAIM, {"name": name, "slot": slot}).fetchone() is not None
