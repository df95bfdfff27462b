"""Rows as acceptance would write them, with the ages and states a test needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.ids import new_send_id
from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.ledger.db import Connection, Ledger
from tests.support.minutes import agree


@dataclass(frozen=True)
class MadeSend:
    id: UUID
    channel: Channel
    count: int


def make_tenant(connection: Connection, name: str = "acme") -> tuple[int, int]:
    """A tenant and a live key; their ids."""
    row = connection.execute(
        "INSERT INTO tenant (name, default_region, email_from) VALUES (%s, 'CA', 'Acme <news@example.com>')"
        " ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id",
        [name],
    ).fetchone()
    assert row is not None
    key = connection.execute(
        "INSERT INTO api_key (tenant_id, name, mode, prefix, hash) VALUES (%s, 'k', 'live', 'tid_live_x', %s)"
        " ON CONFLICT (hash) DO UPDATE SET name = 'k' RETURNING id",
        [row[0], name.encode()],
    ).fetchone()
    assert key is not None
    return row[0], key[0]


def make_send(
    ledger: Ledger,
    *,
    count: int = 1,
    addresses: Sequence[str] | None = None,
    channel: Channel = Channel.EMAIL,
    lane: Lane = Lane.BULK,
    mode: Mode = Mode.LIVE,
    status: SendStatus = SendStatus.PENDING,
    tenant: str = "acme",
    batch_size: int = 25,
    age: str = "0 seconds",
    send_at: str | None = None,
    valid_until: str | None = None,
    content: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
) -> MadeSend:
    """A send with its deliveries and batches; `age`, `send_at` and `valid_until` are intervals from now."""
    addresses = addresses or (
        [f"person{n}@example.com" for n in range(count)]
        if channel is Channel.EMAIL
        else [f"+16045550{n:03}" for n in range(count)]
    )
    content = content or (
        {"subject": "Hello {{ name }}", "text": "Dear {{ name }}, number {{ n }}.", "html": None}
        if channel is Channel.EMAIL
        else {"text": "Dear {{ name }}"}
    )
    send_id = new_send_id()
    with ledger.transaction() as connection:
        tenant_id, key_id = make_tenant(connection, tenant)
        connection.execute(
            "INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, content, params, accepted, created_at,"
            " queued_at, started_at, send_at, valid_until)"
            " VALUES (%(id)s, %(tenant)s, %(key)s, %(mode)s, %(lane)s, %(status)s, %(content)s, %(params)s,"
            " %(accepted)s, now() - %(age)s::interval, now() - %(age)s::interval,"
            " CASE WHEN %(status)s = 'sending' THEN now() - %(age)s::interval END,"
            " now() + %(send_at)s::interval, now() + %(valid_until)s::interval)",
            {
                "id": send_id,
                "tenant": tenant_id,
                "key": key_id,
                "mode": mode.value,
                "lane": lane.value,
                "status": status.value,
                "content": Jsonb({channel.value: content}),
                "params": Jsonb(params or {"name": "you", "n": 0}),
                "accepted": Jsonb({channel.value: len(addresses)}),
                "age": age,
                "send_at": send_at,
                "valid_until": valid_until,
            },
        )
        with connection.cursor().copy("COPY delivery (send_id, row_no, channel, address, params) FROM STDIN") as copy:
            for row_no, address in enumerate(addresses, start=1):
                copy.write_row((send_id, row_no, channel.value, address, Jsonb({"n": row_no})))
        connection.execute(
            "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, owed)"
            " SELECT %(id)s, n, %(channel)s, n * %(size)s + 1, least((n + 1) * %(size)s, %(count)s), now(),"
            " least((n + 1) * %(size)s, %(count)s) - n * %(size)s"
            " FROM generate_series(0, (%(count)s - 1) / %(size)s) AS n",
            {"id": send_id, "channel": channel.value, "size": batch_size, "count": len(addresses)},
        )
        agree(connection)
    return MadeSend(send_id, channel, len(addresses))


def counts(ledger: Ledger, send_id: UUID) -> dict[str, int]:
    """Deliveries of a send per status, read from the rows themselves."""
    with ledger.autocommit() as connection:
        rows = connection.execute("SELECT status, count(*) FROM delivery WHERE send_id = %s GROUP BY 1", [send_id])
        return {str(status): int(n) for status, n in rows}


def books(ledger: Ledger, send_id: UUID) -> dict[str, int]:
    """The same from the batches' counts, zeros left out: the two must always be equal."""
    names = (
        "owed",
        "sending",
        "retrying",
        "sent",
        "failed",
        "dead_lettered",
        "unsure",
        "suppressed",
        "cancelled",
        "expired",
    )
    columns = ", ".join(f"sum({name})::int" for name in names)
    with ledger.autocommit() as connection:
        row = connection.execute(f"SELECT {columns} FROM batch WHERE send_id = %s", [send_id]).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return {name: value for name, value in zip(names, row, strict=True) if value}


def send_status(ledger: Ledger, send_id: UUID) -> str:
    with ledger.autocommit() as connection:
        row = connection.execute("SELECT status FROM send WHERE id = %s", [send_id]).fetchone()
    assert row is not None
    return str(row[0])
