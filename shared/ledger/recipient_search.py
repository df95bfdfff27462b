"""Everything that was sent to one address, the newest first: looked through, for as long as a person waits."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.masking import mask_text
from shared.domain.states import Channel, DeliveryStatus
from shared.ledger.db import Connection
from shared.ledger.queries import statement
from shared.ledger.sends import NEWEST

_BY_KEY = statement("find_by_key_alone")
_LOOK = statement("look_for_address")
_FOUND = statement("select_found_deliveries")

#: A delivery: its send's id and its row number.
Key = tuple[UUID, int]

#: Lends a connection inside one transaction.
Transaction = Callable[[], AbstractContextManager[Connection]]

#: Deliveries looked at in one statement: some 30 ms.
CHUNK = 20_000
_BEFORE_ALL: Key = (NEWEST, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Found:
    """One delivery to the address; `error` is masked. `at` is its last attempt, or when it was settled without one."""

    send_id: UUID
    row_no: int
    status: DeliveryStatus
    proving: bool
    epoch: int
    attempts: int
    next_attempt_at: datetime | None
    at: datetime | None
    provider: str | None
    receipt_status: str | None
    error: str | None
    tenant: str
    send_name: str | None
    accepted_at: datetime


@dataclass(frozen=True, slots=True)
class Looked:
    """
    What a look found among `count` deliveries, down to those accepted at `since`.

    `last` is where the next look goes on, None where nothing older is kept.
    """

    keys: list[Key]
    count: int
    since: datetime | None
    last: Key | None


def look(
    transaction: Transaction,
    channel: Channel,
    address: str,
    *,
    most: int,
    seconds: float,
    before: Key | None = None,
    chunk: int = CHUNK,
) -> Looked:
    """
    Look through the deliveries before one, the newest first, until `most` are found or the time is over.

    Each chunk is in a transaction of its own: several that look for seconds leave connections for others between.
    """
    until = time.monotonic() + seconds
    keys: list[Key] = []
    count, since, last = 0, None, before or _BEFORE_ALL
    while True:
        rows = _chunk(transaction, channel, address, before=last, limit=chunk)
        keys += [(send_id, row_no) for send_id, row_no, is_it, *_ in rows if is_it]
        if len(keys) > most:
            return Looked(keys[:most], count, since, keys[most - 1])
        for send_id, row_no, is_it, accepted_at, looked in rows:
            if not is_it:
                last, since, count = (send_id, row_no), accepted_at, count + looked
        if not rows or rows[-1][4] < chunk:
            return Looked(keys, count, since, None)
        if len(keys) == most or time.monotonic() >= until:
            return Looked(keys, count, since, last)


def _chunk(
    transaction: Transaction, channel: Channel, address: str, *, before: Key, limit: int
) -> list[tuple[Any, ...]]:
    parameters = {
        "channel": channel.value,
        "address": address,
        "before_send": before[0],
        "before_row": before[1],
        "limit": limit,
    }
    with transaction() as connection:
        connection.execute(_BY_KEY)
        # Not prepared: a plan for any limit would read and sort them all.
        return connection.execute(_LOOK, parameters, prepare=False).fetchall()


def select(connection: Connection, keys: list[Key]) -> list[Found]:
    """The deliveries that a look found; inside a transaction."""
    parameters = {"send_ids": [send_id for send_id, _ in keys], "row_nos": [row_no for _, row_no in keys]}
    connection.execute(_BY_KEY)
    return [_found(row) for row in connection.execute(_FOUND, parameters, prepare=False)]


def _found(row: tuple[Any, ...]) -> Found:
    error = mask_text(row[10]) if row[10] else None
    return Found(*(*row[:2], DeliveryStatus(row[2]), *row[3:10], error, *row[11:]))
