"""What must be true when all is settled: the sum, from the API and from the rows, and the provider's own count."""

import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass

import psycopg

from shared.ledger.db import POSTGRES_AWAY
from tests.support.books import assert_books_balance
from tests.support.factories import counts
from tests.support.waiting import wait_until
from tests.system.chaos.stage import Stage

#: s; what a provider knows is looked up after half a minute and absence counts after ten: rows age by this
_AGE_S = 900
_AGE_EVERY_S = 2.0

_OPEN = "SELECT count(*) FROM send WHERE status NOT IN ('completed', 'cancelled')"
_AGE_BATCHES = """
UPDATE batch SET prove_at = prove_at - make_interval(secs => %(age)s)
WHERE prove_at > now() + interval '1 second' RETURNING send_id, first_row, last_row
"""
_AGE_ROWS = """
UPDATE delivery d
SET prove_at = d.prove_at - make_interval(secs => %(age)s),
    last_attempt_at = d.last_attempt_at - make_interval(secs => %(age)s)
FROM unnest(%(sends)s::uuid[], %(first)s::int[], %(last)s::int[]) AS aged (send_id, first_row, last_row)
WHERE d.send_id = aged.send_id AND d.row_no BETWEEN aged.first_row AND aged.last_row AND d.prove_at IS NOT NULL
"""
_OPEN_BATCHES = """
SELECT send_id::text, batch_no, owed, sending, retrying, proving, holder::text, due_at::text, prove_at::text
FROM batch WHERE settled_at IS NULL LIMIT 5
"""
_UNSURE_EVER = "SELECT count(DISTINCT (send_id, row_no)) FROM attempt WHERE send_id = ANY (%s) AND became = 'unsure'"
_MOST_ATTEMPTS = "SELECT coalesce(max(attempt_count), 0) FROM delivery WHERE send_id = ANY (%s)"


@dataclass(frozen=True)
class Found:
    """The figures of a scenario. `unsure_ever` rows were in doubt at some time, `in_flight` at the kills."""

    recipients: int
    accepted: int
    sent: int
    unsure: int
    unsure_ever: int
    in_flight: int
    most_attempts: int
    seconds: float


def settle(stage: Stage, *, within_s: float) -> None:
    """
    Wait until every send is over.

    The minutes that a proof waits are not lived through: rows in doubt are made older instead.
    """
    aged_at = time.monotonic()

    def over() -> bool:
        nonlocal aged_at
        stage.fleet.check()
        with suppress(*POSTGRES_AWAY), stage.ledger.autocommit() as connection:
            if time.monotonic() - aged_at > _AGE_EVERY_S:
                aged_at = time.monotonic()
                _let_proofs_age(connection)
            row = connection.execute(_OPEN).fetchone()
            return row is not None and row[0] == 0
        return False

    try:
        wait_until(over, timeout=min(within_s, stage.patience_s), what="every send to be over")
    except AssertionError as error:
        raise AssertionError(f"{error}: {_what_is_open(stage)}") from None


def judge(stage: Stage, *, since: float, unsure: int = 0, in_doubt: int | None = None, attempts: int = 5) -> Found:
    """
    Fail unless the books balance and every recipient got the message once.

    Args:
        since: of `time.monotonic`, when the scenario began.
        unsure: parked for a person at the end, exactly.
        in_doubt: rows that may have been unsure at any time; None where only the end matters.
        attempts: most that a delivery may have used up.
    """
    rows: Counter[str] = Counter()
    for send in stage.sends:
        by_row = counts(stage.ledger, send.id)
        status, view = stage.call("GET", f"/sends/{send.id}")
        assert status == 200, view
        books = view["books"]["email"]
        assert books["unaccounted"] == 0, books
        assert {name: books[name] for name in by_row} == by_row, (books, by_row)
        assert sum(by_row.values()) == books["accepted"] == len(send.recipients)
        rows.update(by_row)
    found = _figures(stage, rows, since)
    _judge_provider(stage, found)
    assert_books_balance(stage.ledger)
    assert rows["unsure"] == unsure, found
    assert rows["sent"] == found.recipients - unsure, (rows, found)
    if in_doubt is not None:
        assert found.unsure_ever <= in_doubt, found
    assert found.most_attempts <= attempts, found
    return found


def _judge_provider(stage: Stage, found: Found) -> None:
    accepted = stage.provider.counts().accepted
    reached = {to: accepted.get(to, 0) for send in stage.sends for to in send.recipients}
    twice = {to: times for to, times in reached.items() if times > 1}
    assert not twice, f"{len(twice)} got it more than once: {dict(list(twice.items())[:5])}"
    with stage.ledger.autocommit() as connection:
        sent = connection.execute(
            "SELECT address FROM delivery WHERE send_id = ANY (%s) AND status = 'sent'", [[s.id for s in stage.sends]]
        ).fetchall()
    lost = [address for (address,) in sent if not reached[address]]
    assert not lost, f"{len(lost)} are shown as sent and got nothing: {lost[:5]}"
    assert found.accepted <= found.sent + found.unsure, found


def _figures(stage: Stage, rows: Counter[str], since: float) -> Found:
    ids = [send.id for send in stage.sends]
    with stage.ledger.autocommit() as connection:
        unsure_ever, most = (connection.execute(query, [ids]).fetchone() for query in (_UNSURE_EVER, _MOST_ATTEMPTS))
    return Found(
        recipients=sum(len(send.recipients) for send in stage.sends),
        accepted=stage.accepted(),
        sent=rows["sent"],
        unsure=rows["unsure"],
        unsure_ever=int(unsure_ever[0]) if unsure_ever else 0,
        in_flight=sum(death.in_flight for death in stage.fleet.deaths),
        most_attempts=int(most[0]) if most else 0,
        seconds=round(time.monotonic() - since, 1),
    )


def as_line(found: Found) -> str:
    return " ".join(f"{name}={value}" for name, value in asdict(found).items())


def _what_is_open(stage: Stage) -> str:
    with stage.ledger.autocommit() as connection:
        batches = connection.execute(_OPEN_BATCHES).fetchall()
        rows = connection.execute("SELECT status, count(*) FROM delivery GROUP BY 1 ORDER BY 1").fetchall()
    return f"rows {dict(rows)}, some open batches {batches}"


def _let_proofs_age(connection: psycopg.Connection) -> None:
    # Batches first, as everybody; their rows are read once they are locked.
    with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
        aged = connection.execute(_AGE_BATCHES, {"age": _AGE_S}).fetchall()
        sends, first, last = ([row[n] for row in aged] for n in range(3))
        connection.execute(_AGE_ROWS, {"age": _AGE_S, "sends": sends, "first": first, "last": last})
