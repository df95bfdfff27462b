"""Worker processes as holders: a batch or chain is free once its holder's lease has run out."""

from uuid import UUID

from shared.ledger.db import Connection
from shared.ledger.queries import statement
from shared.settings import LEASE_MAX_MS

_REGISTER = statement("register_worker")
_RENEW = statement("renew_worker")
_REMOVE = statement("remove_worker")
_SHORTEN = statement("shorten_leases")
_FORGET = statement("forget_dead_workers")


def register(connection: Connection, *, worker: UUID, name: str, lease_s: float) -> None:
    """Begin (or begin again) to be able to hold work for `lease_s` seconds."""
    connection.execute(_REGISTER, {"worker": worker, "name": name, "lease_s": lease_s})


def renew(connection: Connection, *, worker: UUID, lease_s: float) -> bool:
    """Keep everything this process holds; False when the lease was already lost."""
    return connection.execute(_RENEW, {"worker": worker, "lease_s": lease_s}).fetchone() is not None


def remove(connection: Connection, *, worker: UUID) -> None:
    """End cleanly."""
    connection.execute(_REMOVE, {"worker": worker})


def shorten_leases(connection: Connection) -> int:
    """Let no lease outlast the longest there is, whatever the ledger's clock was when it was given; how many did."""
    return connection.execute(_SHORTEN, {"longest_s": LEASE_MAX_MS / 1000}).rowcount


def forget_dead(connection: Connection) -> int:
    """Remove rows of processes dead for a day; the number removed."""
    return connection.execute(_FORGET).rowcount
