"""Whether the books balance: what the batches count is what the rows are, for every send of a database."""

from shared.ledger.db import Ledger

_STATES = (
    "owed", "sending", "retrying", "sent", "failed", "dead_lettered", "unsure", "suppressed", "cancelled", "expired",
)  # fmt: skip

_WRONG_COUNTS = f"""
SELECT b.send_id, b.batch_no, s.name AS state, s.counted, count(d.row_no) AS found
FROM batch b
CROSS JOIN LATERAL (VALUES {", ".join(f"('{state}', b.{state})" for state in _STATES)}) AS s (name, counted)
LEFT JOIN delivery d ON d.send_id = b.send_id AND d.row_no BETWEEN b.first_row AND b.last_row AND d.status = s.name
GROUP BY b.send_id, b.batch_no, s.name, s.counted
HAVING s.counted <> count(d.row_no)
"""
_ACCEPTED_DIFFERS = """
SELECT s.id, s.accepted, (SELECT count(*) FROM delivery d WHERE d.send_id = s.id) AS rows
FROM send s
WHERE (SELECT sum(value::int) FROM jsonb_each_text(s.accepted))
      <> (SELECT count(*) FROM delivery d WHERE d.send_id = s.id)
  AND s.forgotten_at IS NULL
"""
_IN_A_CALL_BUT_HELD_BY_NOBODY = """
SELECT send_id, batch_no, sending FROM batch WHERE sending > 0 AND holder IS NULL
"""
_WAITING_BUT_NEVER_FOUND = """
SELECT send_id, batch_no FROM batch WHERE holder IS NULL AND owed + retrying > 0 AND due_at IS NULL
"""
_FOUND_TOO_LATE = """
SELECT b.send_id, b.batch_no FROM batch b
WHERE b.holder IS NULL AND b.due_at > (
    SELECT min(coalesce(d.next_attempt_at, '-infinity')) FROM delivery d
    WHERE d.send_id = b.send_id AND d.row_no BETWEEN b.first_row AND b.last_row AND d.status IN ('owed', 'retrying'))
  AND b.due_at > now()
"""
_SETTLED_WRONGLY = """
SELECT send_id, batch_no FROM batch
WHERE holder IS NULL AND (settled_at IS NOT NULL) <> (owed + sending + retrying + proving = 0)
"""
_PROVED_BUT_NOT_COUNTED = """
SELECT b.send_id, b.batch_no, b.proving, b.prove_at, d.proving AS found, d.prove_at AS first
FROM batch b
CROSS JOIN LATERAL (
    SELECT count(*) AS proving, min(prove_at) AS prove_at FROM delivery
    WHERE send_id = b.send_id AND row_no BETWEEN b.first_row AND b.last_row AND prove_at IS NOT NULL
) AS d
WHERE b.proving <> d.proving OR b.prove_at IS DISTINCT FROM d.prove_at
"""
_OVER_BUT_OPEN = """
SELECT s.id FROM send s
WHERE (s.status = 'completed' OR (s.status = 'cancelled' AND s.settled_counts IS NOT NULL))
  AND EXISTS (SELECT 1 FROM batch b WHERE b.send_id = s.id AND b.owed + b.sending + b.retrying + b.proving > 0)
"""
_TOTALS_DIFFER = """
SELECT s.id, s.settled_counts FROM send s
WHERE s.settled_counts IS NOT NULL AND s.forgotten_at IS NULL
  AND (SELECT sum(n.value::int) FROM jsonb_each(s.settled_counts) AS c, jsonb_each_text(c.value) AS n
       WHERE n.key IN ('sent', 'unsure'))
      <> (SELECT sum(b.sent + b.unsure) FROM batch b WHERE b.send_id = s.id)
   OR s.settled_counts IS NOT NULL AND s.forgotten_at IS NULL
  AND (SELECT sum(n.value::int) FROM jsonb_each(s.settled_counts) AS c, jsonb_each_text(c.value) AS n
       WHERE n.key = 'sent')
      <> (SELECT sum(b.sent) FROM batch b WHERE b.send_id = s.id)
"""
_ATTEMPTS_DIFFER = """
SELECT d.send_id, d.row_no, d.attempt_count, count(a.*) AS logged
FROM delivery d LEFT JOIN attempt a ON a.send_id = d.send_id AND a.row_no = d.row_no AND a.epoch = d.epoch
WHERE d.attempt_count > 0 GROUP BY 1, 2, 3 HAVING count(a.*) < d.attempt_count
"""
_MINUTES_DIFFER = """
WITH ledger AS (
    SELECT s.mode, b.channel, sum(b.last_row - b.first_row + 1) AS accepted, sum(b.sent) AS sent,
           sum(b.suppressed) AS suppressed, sum(b.cancelled) AS cancelled, sum(b.expired) AS expired,
           sum(b.failed + b.dead_lettered + b.unsure) AS broken
    FROM batch b JOIN send s ON s.id = b.send_id GROUP BY 1, 2
), minutes AS (
    SELECT mode, channel, sum(accepted) AS accepted, sum(sent) AS sent, sum(suppressed) AS suppressed,
           sum(cancelled) AS cancelled, sum(expired) AS expired,
           sum(failed + dead_lettered + unsure - requeued - resolved) AS broken,
           sum(sent) FILTER (WHERE took = 0) AS untimed
    FROM minute_count GROUP BY 1, 2
)
SELECT mode, channel, to_jsonb(l) AS ledger, to_jsonb(m) AS minutes
FROM ledger l FULL JOIN minutes m USING (mode, channel)
WHERE (l.accepted, l.sent, l.suppressed, l.cancelled, l.expired, l.broken)
      IS DISTINCT FROM (m.accepted, m.sent, m.suppressed, m.cancelled, m.expired, m.broken)
  AND NOT EXISTS (SELECT 1 FROM send WHERE forgotten_at IS NOT NULL)
"""

_FAILURES_DIFFER = """
SELECT coalesce(d.send_id, f.send_id) AS send_id, coalesce(d.row_no, f.row_no) AS row_no, d.status, f.status AS noted
FROM (SELECT * FROM delivery WHERE status IN ('failed', 'dead_lettered', 'unsure')) AS d
FULL JOIN failure f ON f.send_id = d.send_id AND f.row_no = d.row_no
WHERE (d.status, d.epoch, d.prove_at IS NOT NULL, coalesce(d.receipt_status NOT IN ('failed', 'undelivered'), false))
      IS DISTINCT FROM (f.status, f.epoch, f.proving, f.reported)
"""

_LAWS = {
    "a batch counts what its rows are": _WRONG_COUNTS,
    "every accepted delivery has a row": _ACCEPTED_DIFFERS,
    "what is in a call is held by somebody": _IN_A_CALL_BUT_HELD_BY_NOBODY,
    "what waits can be found": _WAITING_BUT_NEVER_FOUND,
    "a batch is due when its first row is": _FOUND_TOO_LATE,
    "a free batch is settled exactly when nothing of it is open": _SETTLED_WRONGLY,
    "a batch counts what is being proved, and is looked at when the first row is": _PROVED_BUT_NOT_COUNTED,
    "a send that is over has nothing open": _OVER_BUT_OPEN,
    "the totals written down are those of the batches": _TOTALS_DIFFER,
    "every attempt that was used up was written down": _ATTEMPTS_DIFFER,
    "the counts of the minutes sum to the books": _MINUTES_DIFFER,
    "the failures are the deliveries that are failed, dead-lettered or unsure": _FAILURES_DIFFER,
}


def assert_books_balance(ledger: Ledger, *, except_for: frozenset[str] = frozenset()) -> None:
    """Fail with every law of the ledger that is broken, and where; rows made by hand may be `except_for` one."""
    with ledger.autocommit() as connection:
        broken = {
            law: rows
            for law, query in _LAWS.items()
            if law not in except_for and (rows := connection.execute(query).fetchall())
        }
    assert not broken, broken
