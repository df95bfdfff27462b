"""A tenant's suppression list as operators see it. Workers add to it, and look at it, in `deliveries`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.domain.states import Channel
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SELECT = statement("select_suppressions")
_REMOVE = statement("remove_suppressions")
#: Rows read at a time.
_PAGE = 1_000


@dataclass(frozen=True)
class Suppression:
    """An address that is not written to, and why."""

    channel: Channel
    address: str
    reason: str
    created_at: datetime


def every(connection: Connection, tenant_id: int) -> Iterator[Suppression]:
    """The whole list, in order of channel and address, however long."""
    channel, address = "", ""
    while True:
        place = {"tenant_id": tenant_id, "channel": channel, "address": address, "limit": _PAGE}
        rows = connection.execute(_SELECT, place).fetchall()
        yield from (Suppression(Channel(row[0]), *row[1:]) for row in rows)
        if len(rows) < _PAGE:
            return
        channel, address = rows[-1][0], rows[-1][1]


def remove(connection: Connection, *, tenant_id: int, channel: Channel, addresses: Sequence[str]) -> int:
    """Take addresses off the list, and count those that were on it. What was settled as `suppressed` stays so."""
    parameters = {"tenant_id": tenant_id, "channel": channel.value, "addresses": list(addresses)}
    return len(connection.execute(_REMOVE, parameters).fetchall())
