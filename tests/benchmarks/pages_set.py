"""
A ledger to look at: a send to a million half done, 49 sends beside it and single ones of many tenants, 100,000 dead
letters of many causes, hours of minutes.
"""

from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from shared.domain.ids import new_send_id
from shared.ledger.db import Connection, Ledger
from tests.support.factories import make_tenant
from tests.support.minutes import agree

#: One of so many settled deliveries of the large send is dead-lettered, under one of so many causes.
_DEAD_EVERY, _CAUSES = 5, 300
_BATCH = 25
#: Tenants of the single sends, and connections that counted in each of the last minutes, which nobody has folded.
_SMALL_TENANTS, _WRITERS = 500, 50


@dataclass(frozen=True)
class PagesSet:
    """What was put there: the large send, and how many deliveries and dead letters there are in all."""

    large: UUID
    deliveries: int
    dead: int


def fill(ledger: Ledger, *, large: int, small: int, singles: int = 0, sends: int = 50) -> PagesSet:
    """Put a send of `large` recipients, half of it settled, others of `small` and of one each, into an empty ledger."""
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        first = _send(connection, large, tenant="acme")
        for number in range(sends - 1):
            _send(connection, small, tenant=f"tenant {number % 10}", channel="sms" if number % 5 == 0 else "email")
        _singles(connection, singles)
        agree(connection)
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent, failed, calls, accepted,"
            " requests) SELECT date_trunc('minute', now()) - ago * interval '1 minute', 0, 'live', channel, 'ches',"
            " took, 40, 1, 41, 41, 1 FROM generate_series(0, 185) AS ago, unnest('{email,sms}'::text[]) AS channel,"
            " generate_series(1, 12) AS took"
        )
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent, calls)"
            " SELECT date_trunc('minute', now()) - ago * interval '1 minute', writer, 'live', 'email', 'ches', took, 1,"
            " 1"
            " FROM generate_series(0, 10) AS ago, generate_series(1, %s) AS writer, generate_series(1, 6) AS took",
            [_WRITERS],
        )
        dead = connection.execute("SELECT sum(dead_lettered) FROM batch").fetchone()
    with ledger.autocommit() as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("VACUUM ANALYZE")
    return PagesSet(first, large + (sends - 1) * small + singles, int(dead[0]) if dead else 0)


def _send(connection: Connection, count: int, *, tenant: str, channel: str = "email") -> UUID:
    tenant_id, key_id = make_tenant(connection, tenant)
    send_id = new_send_id()
    given = {
        "id": send_id, "tenant": tenant_id, "key": key_id, "channel": channel, "count": count, "size": _BATCH,
        "content": Jsonb({channel: {"subject": "Hello", "text": "Hello", "html": None}}),
        "accepted": Jsonb({channel: count}), "every": _DEAD_EVERY, "causes": _CAUSES, "name": f"To {count:,}",
    }  # fmt: skip
    connection.execute(
        "INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, name, content, accepted, created_at,"
        " queued_at, started_at) VALUES (%(id)s, %(tenant)s, %(key)s, 'live', 'bulk', 'sending', %(name)s,"
        " %(content)s, %(accepted)s, now() - interval '1 hour', now(), now())",
        given,
    )
    connection.execute(
        "INSERT INTO delivery (send_id, row_no, channel, address, status, attempt_count, first_attempt_at,"
        " last_attempt_at, settled_at, provider, last_error)"
        " SELECT %(id)s, n, %(channel)s, CASE %(channel)s WHEN 'email' THEN 'person' || n || '@example.com'"
        " ELSE '+1604' || lpad(n::text, 7, '0') END,"
        " CASE WHEN n * 2 > %(count)s THEN 'owed' WHEN n %% %(every)s = 0 THEN 'dead_lettered' ELSE 'sent' END,"
        " CASE WHEN n * 2 > %(count)s THEN 0 ELSE 1 END, t.at, t.at, t.at,"
        " CASE WHEN n * 2 <= %(count)s THEN 'ches' END,"
        " CASE WHEN n * 2 <= %(count)s AND n %% %(every)s = 0"
        " THEN 'refused for reason ' || n / %(every)s %% %(causes)s END"
        " FROM generate_series(1, %(count)s) AS n CROSS JOIN LATERAL (SELECT CASE WHEN n * 2 <= %(count)s"
        " THEN now() - (n %% 3600) * interval '1 second' END AS at) AS t",
        given,
    )
    connection.execute(
        "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, settled_at, owed, sent,"
        " dead_lettered) SELECT %(id)s, (row_no - 1) / %(size)s, %(channel)s, min(row_no), max(row_no),"
        " CASE WHEN count(*) FILTER (WHERE status = 'owed') > 0 THEN now() END,"
        " CASE WHEN count(*) FILTER (WHERE status = 'owed') = 0 THEN now() END,"
        " count(*) FILTER (WHERE status = 'owed'), count(*) FILTER (WHERE status = 'sent'),"
        " count(*) FILTER (WHERE status = 'dead_lettered')"
        " FROM delivery WHERE send_id = %(id)s GROUP BY (row_no - 1) / %(size)s",
        given,
    )
    return send_id


def add_singles(ledger: Ledger, count: int) -> None:
    """Put so many sends of one delivery each beside what is there."""
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        _singles(connection, count)
    with ledger.autocommit() as connection:
        connection.execute("VACUUM ANALYZE")


def _singles(connection: Connection, count: int) -> None:
    """Sends of one delivery each, in progress: half of them wait for their next try."""
    made = [make_tenant(connection, f"small {number}") for number in range(_SMALL_TENANTS)]
    given = {
        "ids": [new_send_id() for _ in range(count)],
        "tenants": [tenant for tenant, _ in made], "keys": [key for _, key in made], "tenant_count": len(made),
        "content": Jsonb({"email": {"subject": "Hello", "text": "Hello", "html": None}}),
    }  # fmt: skip
    connection.execute(
        "INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, content, accepted, queued_at, started_at)"
        " SELECT id, (%(tenants)s::bigint[])[1 + n %% %(tenant_count)s],"
        " (%(keys)s::bigint[])[1 + n %% %(tenant_count)s], 'live', 'single', 'sending', %(content)s, '{\"email\": 1}',"
        " now(), now()"
        " FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS i (id, n)",
        given,
    )
    connection.execute(
        "INSERT INTO delivery (send_id, row_no, channel, address, status, attempt_count, next_attempt_at)"
        " SELECT id, 1, 'email', 'single' || n || '@example.com', CASE WHEN n %% 2 = 0 THEN 'retrying' ELSE 'owed' END,"
        " 1 - n %% 2, CASE WHEN n %% 2 = 0 THEN now() + n %% 600 * interval '1 second' END"
        " FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS i (id, n)",
        given,
    )
    connection.execute(
        "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, owed, retrying)"
        " SELECT send_id, 0, channel, 1, 1, coalesce(next_attempt_at, now()), (status = 'owed')::int,"
        " (status = 'retrying')::int FROM delivery WHERE send_id = ANY (%(ids)s::uuid[])",
        given,
    )
