"""Worker processes as holders: a batch or chain is free once its holder's lease has run out."""

from uuid import UUID

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_REGISTER = statement("register_worker")
_RENEW = statement("renew_worker")
_REMOVE = statement("remove_worker")
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


def forget_dead(connection: Connection) -> int:
    """Remove rows of processes dead for a day; the number removed."""
    return connection.execute(_FORGET).rowcount
