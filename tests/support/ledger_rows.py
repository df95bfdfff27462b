"""Rows of a test brought into any state, and read back; the batches' counts go with them."""

from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import dict_row

from shared.domain.states import DeliveryStatus, SendStatus
from shared.ledger.db import Ledger
from tests.support.minutes import agree
from tests.support.waiting import wait_until

_OPEN = ("owed", "sending", "retrying")


def put_rows(
    ledger: Ledger,
    send_id: UUID,
    rows: range | list[int],
    status: str,
    *,
    due_in: str | None = None,
    claim: UUID | None = None,
    attempts: int = 0,
    prove_in: str | None = None,
) -> None:
    """
    Bring rows into a state as if the machine had; `due_in` is an interval from now, for `owed` and `retrying`.

    `prove_in`, an interval from now, makes an `unsure` row one that is being proved.
    """
    if status == "retrying" and due_in is None:
        due_in = "5 minutes"
    with ledger.transaction() as connection:
        changed = connection.execute(
            "UPDATE delivery SET status = %(status)s, attempt_count = %(attempts)s,"
            " next_attempt_at = now() + %(due)s::interval,"
            " claim_id = CASE WHEN %(status)s IN ('sending', 'unsure') THEN %(claim)s::uuid END,"
            " last_attempt_at = CASE WHEN %(status)s = 'owed' THEN NULL ELSE now() END,"
            " prove_at = now() + %(prove)s::interval,"
            " settled_at = CASE WHEN %(status)s IN ('owed', 'sending', 'retrying') OR %(prove)s IS NOT NULL"
            " THEN NULL ELSE now() END"
            " WHERE send_id = %(id)s AND row_no = ANY (%(rows)s)",
            {
                "status": status,
                "attempts": attempts,
                "due": due_in,
                "prove": prove_in,
                "claim": claim or uuid4(),
                "id": send_id,
                "rows": list(rows),
            },
        ).rowcount
        assert changed == len(rows)
        for number in range(attempts):
            connection.execute(
                "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
                " started_at, ended_at) SELECT send_id, row_no, gen_random_uuid(), 0, %s, channel, 'sandbox',"
                " 'transient', 'retrying', now() - interval '1 hour', now() - interval '1 hour'"
                " FROM delivery WHERE send_id = %s AND row_no = ANY (%s)",
                [number + 1, send_id, list(rows)],
            )
        recount(connection, send_id)


def put_outage(
    ledger: Ledger,
    credential: str,
    *,
    provider: str = "ches",
    since: str | None = None,
    until: str = "1 minute",
    took: str | None = None,
) -> None:
    """
    What calls came to before the test, as intervals ago.

    The provider took nothing between `since` and `until`, and something at `took`; None where it never did.
    """
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO provider_state (provider, credential, refused_since, refused_at, last_accepted_at)"
            " VALUES (%(provider)s, %(credential)s, now() - %(since)s::interval,"
            " CASE WHEN %(since)s::text IS NOT NULL THEN now() - %(until)s::interval END, now() - %(took)s::interval)",
            {"provider": provider, "credential": credential, "since": since, "until": until, "took": took},
        )


def recount(connection: Any, send_id: UUID) -> None:
    """Make the batches count their rows, and be due with the first of them."""
    sums = ", ".join(
        f"{status.value} = (SELECT count(*) FROM delivery d WHERE d.send_id = b.send_id"
        f" AND d.row_no BETWEEN b.first_row AND b.last_row AND d.status = '{status.value}')"
        for status in DeliveryStatus
    )
    waiting = (
        "FROM delivery d WHERE d.send_id = b.send_id AND d.row_no BETWEEN b.first_row AND b.last_row AND d.status IN"
    )
    of_batch = (
        "FROM delivery d WHERE d.send_id = b.send_id AND d.row_no BETWEEN b.first_row AND b.last_row"
        " AND d.prove_at IS NOT NULL"
    )
    connection.execute(
        f"UPDATE batch b SET {sums}, proving = (SELECT count(*) {of_batch}),"
        f" prove_at = (SELECT min(prove_at) {of_batch}),"
        f" due_at = (SELECT min(coalesce(d.next_attempt_at, now())) {waiting} ('owed', 'retrying')),"
        f" settled_at = CASE WHEN NOT EXISTS (SELECT 1 {waiting} ('owed', 'sending', 'retrying'))"
        f" AND NOT EXISTS (SELECT 1 {of_batch}) THEN now() END"
        " WHERE b.send_id = %s",
        [send_id],
    )
    agree(connection)


def make_due(ledger: Ledger) -> None:
    """Let the time of everything that waits have come."""
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE delivery SET next_attempt_at = now() - interval '1 second' WHERE next_attempt_at > now()"
        )
        connection.execute("UPDATE batch SET due_at = now() - interval '1 second' WHERE due_at > now()")


def put_send(ledger: Ledger, send_id: UUID, status: SendStatus) -> None:
    """Bring a send into a state, with the times that belong to it."""
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE send SET status = %(status)s,"
            " queued_at = CASE WHEN %(status)s <> 'pending' THEN now() END,"
            " send_at = CASE WHEN %(status)s = 'scheduled' THEN coalesce(send_at, now() + interval '1 day')"
            " ELSE send_at END,"
            " started_at = CASE WHEN %(status)s IN ('sending', 'completed') THEN now() END,"
            " completed_at = CASE WHEN %(status)s = 'completed' THEN now() END,"
            " cancelled_at = CASE WHEN %(status)s = 'cancelled' THEN now() END,"
            " paused_at = CASE WHEN %(status)s = 'paused' THEN now() END WHERE id = %(id)s",
            {"status": status.value, "id": send_id},
        )


def one(ledger: Ledger, query: str, *parameters: Any) -> dict[str, Any]:
    """The one row that a query gives."""
    with ledger.autocommit() as connection, connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query, list(parameters)).fetchall()
    assert len(rows) == 1, rows
    return rows[0]


def delivery(ledger: Ledger, send_id: UUID, row_no: int = 1) -> dict[str, Any]:
    """A delivery's row."""
    return one(ledger, "SELECT * FROM delivery WHERE send_id = %s AND row_no = %s", send_id, row_no)


def batch(ledger: Ledger, send_id: UUID, batch_no: int = 0) -> dict[str, Any]:
    """A batch's row, with `due_in_s`, the seconds until it is due."""
    return one(
        ledger,
        "SELECT *, extract(epoch FROM due_at - now())::float8 AS due_in_s FROM batch"
        " WHERE send_id = %s AND batch_no = %s",
        send_id,
        batch_no,
    )


def attempts(ledger: Ledger, send_id: UUID, row_no: int = 1) -> list[dict[str, Any]]:
    """A delivery's attempts, oldest first."""
    with ledger.autocommit() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            "SELECT * FROM attempt WHERE send_id = %s AND row_no = %s ORDER BY ended_at, number", [send_id, row_no]
        ).fetchall()


def scalar(ledger: Ledger, query: str, *parameters: Any) -> Any:
    """The one value that a query gives."""
    with ledger.autocommit() as connection:
        row = connection.execute(query, list(parameters)).fetchone()
    assert row is not None
    return row[0]


def break_rows(ledger: Ledger, send_id: UUID) -> None:
    """From here on no delivery of the send can change its state: as if its rows broke a rule of the ledger."""
    with ledger.autocommit() as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'broken' USING ERRCODE = 'check_violation'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON delivery FOR EACH ROW"
            f" WHEN (OLD.send_id = '{send_id}' AND NEW.status <> OLD.status) EXECUTE FUNCTION refuse()"
        )


def wait_for_a_lock(ledger: Ledger) -> None:
    """Wait until another transaction of the test's database waits for a lock."""
    wait_until(
        lambda: scalar(
            ledger,
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
        ),
        what="the other transaction to wait for a lock",
    )
