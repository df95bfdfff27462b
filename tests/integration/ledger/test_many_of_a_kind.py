"""
What is looked at often stays cheap with many tenants, causes and small sends, of which a benchmark has few.

Counted in rows that the plan's nodes handled, which no busy machine changes.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shared.domain.requeue import FailureFilter
from shared.ledger import failures
from shared.ledger.db import Connection, Ledger
from shared.ledger.queries import statement
from tests.support.failing import CAUSE, fail_again, make_failures
from tests.support.requeuing import finish, plan

TENANTS = 300
#: Sends of one delivery: so many that all that is told of each no longer fits into the memory of a sort.
SINGLE = 12_000

_TENANTS = """
WITH t AS (
    INSERT INTO tenant (name) SELECT 'tenant ' || n FROM generate_series(1, %(tenants)s) AS n RETURNING id
)
INSERT INTO api_key (tenant_id, name, mode, prefix, hash) SELECT id, 'k', 'live', 'tid_live_x', sha256(id::text::bytea)
FROM t
"""
_SENDS = """
INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, content, accepted, created_at, queued_at, started_at)
SELECT (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid, k.tenant_id, k.id, 'live', 'single', %(status)s,
       '{}', '{"email": 1}', now() - interval '1 day', now() - interval '1 day',
       CASE WHEN %(status)s = 'sending' THEN now() - interval '1 day' END
FROM (SELECT *, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS all_keys FROM api_key) AS k
CROSS JOIN generate_series(1, %(sends)s) AS n
WHERE n %% k.all_keys = k.place - 1
"""
_BATCHES = """
INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, owed, recovery_count, holder, chain_no,
                   leased_at)
SELECT id, 0, 'email', 1, 1, now(), 1, 9, %(holder)s, CASE WHEN %(holder)s::uuid IS NOT NULL THEN 0 END,
       CASE WHEN %(holder)s::uuid IS NOT NULL THEN now() - interval '1 day' END
FROM send
"""
_DEAD = "00000000-0000-0000-0000-000000000001"


def fill(connection: Connection, *, sends: int, status: str = "sending", holder: str | None = None) -> None:
    """Sends of one delivery, by turns of all tenants; nothing has analysed them."""
    given = {"tenants": TENANTS, "sends": sends, "status": status, "holder": holder}
    for each in (_TENANTS, _SENDS, _BATCHES):
        connection.execute(each, given)  # type: ignore[arg-type]


def explained(connection: Connection, name: str, **given: object) -> dict[str, Any]:
    """The plan of a statement as it ran."""
    cursor = psycopg.ClientCursor(connection)
    row = cursor.execute(
        b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(name).encode(),
        given,  # type: ignore[arg-type]
    ).fetchone()
    assert row is not None
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    whole: dict[str, Any] = found[0]["Plan"]
    return whole


def nodes(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield of
    for child in of.get("Plans", ()):
        yield from nodes(child)


def handled(whole: dict[str, Any]) -> float:
    """The most rows that a node of a plan gave or threw away."""
    return max(
        node["Actual Loops"]
        * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0))
        for node in nodes(whole)
    )


@pytest.mark.parametrize(
    ("name", "given", "status", "holder"),
    [
        ("find_stuck_sends", {"pending_s": 60, "stale_s": 60}, "pending", None),
        ("find_stuck_batches", {"stale_s": 60}, "sending", _DEAD),
        ("find_spent_batches", {"most": 3}, "sending", None),
        (
            "find_waited_out_batches",
            {"channel": "email", "mode": "live", "wait_s": 60, "outage_since": datetime.now(UTC) - timedelta(days=1)},
            "sending",
            None,
        ),
    ],
)
def test_a_page_of_the_reconciler_compares_no_row_with_every_tenant(
    ledger: Ledger, name: str, given: dict[str, object], status: str, holder: str | None
) -> None:
    with ledger.transaction() as connection:
        fill(connection, sends=10 * TENANTS, status=status, holder=holder)
        seen = dict(connection.execute("SELECT tenant_id::text, min(id::text) FROM send GROUP BY 1").fetchall())
        whole = explained(
            connection, name, limit=1_000, sends=Jsonb(seen), batches=Jsonb(dict.fromkeys(seen, 0)), **given
        )
    assert whole["Actual Rows"] == 1_000
    assert handled(whole) <= 10 * TENANTS


def test_the_sends_in_progress_are_ordered_without_a_file_however_many_are_small(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        fill(connection, sends=SINGLE)
        connection.execute("ANALYZE")
        whole = explained(connection, "select_open_work", most=20, only=None)
    assert whole["Temp Written Blocks"] == 0


def test_what_failed_again_is_counted_less_far_where_many_causes_are_told(ledger: Ledger) -> None:
    send = make_failures(ledger, count=250)
    plan(ledger, FailureFilter())
    finish(ledger)
    fail_again(ledger, send.id, list(range(1, 251)))
    others = [f"{number:012x}" for number in range(49)]
    with ledger.transaction() as connection:
        alone = failures.causes(connection, [CAUSE])[CAUSE]
        among = failures.causes(connection, [CAUSE, *others])[CAUSE]
    assert (alone.again, alone.again_more) == (250, False)
    assert (among.again, among.again_more) == (200, True)


def test_a_preview_puts_failures_of_many_causes_together(ledger: Ledger) -> None:
    make_failures(ledger, count=200)
    with ledger.transaction() as connection:
        connection.execute("UPDATE failure SET signature = lpad(to_hex(row_no), 12, '0')")
        nothing = dict.fromkeys(
            (
                "send_id",
                "signature",
                "channel",
                "tenant",
                "provider",
                "recipient",
                "left_by",
                "since",
                "first",
                "operation",
            )
        )
        asked = {"kind": "requeue", "by_id": False, "send_ids": [], "row_nos": [], "looked_at": ["dead_lettered"],
                 "takes_unsure": False, "takes_reported": False, "as_of": datetime.now(UTC)}  # fmt: skip
        whole = explained(connection, "judge_failures", **nothing, **asked)
    [part] = [node for node in nodes(whole) if node.get("Subplan Name") == "CTE part"]
    assert part["Actual Rows"] == 1
