-- name: select_book_sums
-- The books of the whole service, or of one send: per mode, channel and status of the send, a sum over the batches, and
-- for sends that retention removes, whichever of their batches are still there, the totals that it wrote down. Batches are found send by send,
-- by key: no plan can go wrong by joining all with all.
SELECT s.mode, a.key AS channel, s.status, sum(a.value::bigint)::bigint AS accepted, min(c.next_at) AS next_at,
       jsonb_build_object(
           'waiting', coalesce(sum(coalesce(c.waiting, (s.settled_counts -> a.key ->> 'waiting')::bigint)), 0),
           'sending', coalesce(sum(coalesce(c.sending, (s.settled_counts -> a.key ->> 'sending')::bigint)), 0),
           'retrying', coalesce(sum(coalesce(c.retrying, (s.settled_counts -> a.key ->> 'retrying')::bigint)), 0),
           'proving', coalesce(sum(coalesce(c.proving, (s.settled_counts -> a.key ->> 'proving')::bigint)), 0),
           'sent', coalesce(sum(coalesce(c.sent, (s.settled_counts -> a.key ->> 'sent')::bigint)), 0),
           'failed', coalesce(sum(coalesce(c.failed, (s.settled_counts -> a.key ->> 'failed')::bigint)), 0),
           'dead_lettered', coalesce(sum(coalesce(c.dead_lettered, (s.settled_counts -> a.key ->> 'dead_lettered')::bigint)), 0),
           'unsure', coalesce(sum(coalesce(c.unsure, (s.settled_counts -> a.key ->> 'unsure')::bigint)), 0),
           'suppressed', coalesce(sum(coalesce(c.suppressed, (s.settled_counts -> a.key ->> 'suppressed')::bigint)), 0),
           'cancelled', coalesce(sum(coalesce(c.cancelled, (s.settled_counts -> a.key ->> 'cancelled')::bigint)), 0),
           'expired', coalesce(sum(coalesce(c.expired, (s.settled_counts -> a.key ->> 'expired')::bigint)), 0),
           'later', coalesce(sum(c.later), 0),
           'discarded', coalesce(sum(CASE WHEN c.sent IS NULL THEN (s.settled_counts -> a.key ->> 'discarded')::bigint END), 0),
           'discarded_failed', coalesce(sum(g.failed), 0),
           'discarded_dead_lettered', coalesce(sum(g.dead_lettered), 0),
           'discarded_unsure', coalesce(sum(g.unsure), 0)) AS counts
FROM send s
CROSS JOIN LATERAL jsonb_each_text(s.accepted) AS a
LEFT JOIN LATERAL (
    SELECT sum(owed) AS waiting,
           sum(sending) AS sending,
           sum(retrying) AS retrying,
           sum(proving) AS proving,
           sum(sent) AS sent,
           sum(failed) AS failed,
           sum(dead_lettered) AS dead_lettered,
           sum(unsure - proving) AS unsure,
           sum(suppressed) AS suppressed,
           sum(cancelled) AS cancelled,
           sum(expired) AS expired,
           sum(CASE WHEN holder IS NULL AND due_at > now() THEN owed ELSE 0 END) AS later,
           min(due_at) FILTER (WHERE holder IS NULL AND due_at > now()) AS next_at
    FROM batch WHERE batch.send_id = s.id AND batch.channel = a.key AND s.forgotten_at IS NULL
) AS c ON true
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE f.status = 'failed') AS failed,
           count(*) FILTER (WHERE f.status = 'dead_lettered') AS dead_lettered,
           count(*) FILTER (WHERE f.status = 'unsure') AS unsure
    FROM failure f
    WHERE f.send_id = s.id AND f.channel = a.key AND f.discarded_at IS NOT NULL AND s.forgotten_at IS NULL
) AS g ON true
WHERE %(send_id)s::uuid IS NULL OR s.id = %(send_id)s
GROUP BY s.mode, a.key, s.status
ORDER BY s.mode, a.key, s.status

-- name: find_sends_out_of_balance
-- Sends whose batches, or whose written totals, do not sum to what was accepted. With `since_id` only those in
-- progress, and those accepted since that was the newest id: what changes, at each pass of the reconciler.
SELECT s.id, a.key, a.value::int AS accepted, coalesce(c.counted, w.counted, 0) AS counted
FROM send s
CROSS JOIN LATERAL jsonb_each_text(s.accepted) AS a
LEFT JOIN LATERAL (
    SELECT sum(b.owed + b.sending + b.retrying + b.sent + b.failed + b.dead_lettered + b.unsure + b.suppressed
               + b.cancelled + b.expired)::int AS counted
    FROM batch b WHERE b.send_id = s.id AND b.channel = a.key AND s.forgotten_at IS NULL
) AS c ON true
LEFT JOIN LATERAL (
    SELECT sum(n.value::int)::int AS counted FROM jsonb_each_text(s.settled_counts -> a.key) AS n
) AS w ON true
WHERE (%(send_id)s::uuid IS NULL OR s.id = %(send_id)s)
  AND (%(since_id)s::uuid IS NULL OR s.id >= %(since_id)s
       OR s.status IN ('pending', 'queued', 'scheduled', 'sending', 'paused'))
  AND coalesce(c.counted, w.counted, 0) <> a.value::int
ORDER BY s.id LIMIT %(limit)s

-- name: find_deliveries_out_of_balance
-- One send: deliveries that its batches do not count as what they are, those without a batch, and those without a row.
-- A batch that counts wrongly names all its rows of the states in question: which of them is too many, nobody knows.
-- Of a send that retention removes, neither batches nor rows are counted any more.
WITH counted AS (
    SELECT b.batch_no, b.first_row, b.last_row, n.state, n.counted
    FROM batch b
    CROSS JOIN LATERAL (VALUES
        ('owed', b.owed), ('sending', b.sending), ('retrying', b.retrying), ('sent', b.sent), ('failed', b.failed),
        ('dead_lettered', b.dead_lettered), ('unsure', b.unsure), ('suppressed', b.suppressed),
        ('cancelled', b.cancelled), ('expired', b.expired)) AS n (state, counted)
    WHERE b.send_id = %(send_id)s
), actual AS (
    SELECT b.batch_no, b.first_row, b.last_row, d.status AS state, count(*)::int AS rows
    FROM batch b
    CROSS JOIN LATERAL (
        SELECT status FROM delivery WHERE send_id = %(send_id)s AND row_no BETWEEN b.first_row AND b.last_row OFFSET 0
    ) AS d
    WHERE b.send_id = %(send_id)s
    GROUP BY b.batch_no, b.first_row, b.last_row, d.status
), differing AS (  -- without a join of the two sides, for which no plan could be trusted
    SELECT c.batch_no, c.first_row, c.last_row, c.state
    FROM (
        SELECT batch_no, first_row, last_row, state, sum(counted) AS counted, sum(rows) AS rows
        FROM (
            SELECT batch_no, first_row, last_row, state, counted, 0 AS rows FROM counted
            UNION ALL
            SELECT batch_no, first_row, last_row, state, 0, rows FROM actual
        ) AS both_sides
        GROUP BY batch_no, first_row, last_row, state
    ) AS c
    WHERE c.counted <> c.rows
), gap AS (
    SELECT before + 1 AS first_row, first_row - 1 AS last_row
    FROM (SELECT first_row, coalesce(lag(last_row) OVER (ORDER BY first_row), 0) AS before
          FROM batch WHERE send_id = %(send_id)s) AS ordered
    WHERE first_row > before + 1
    UNION ALL
    SELECT max(last_row) + 1, 2147483647 FROM batch WHERE send_id = %(send_id)s HAVING count(*) > 0
), named AS (
    SELECT d.row_no, 'its batch does not count it as ' || d.status AS why
    FROM differing x JOIN delivery d
        ON d.send_id = %(send_id)s AND d.row_no BETWEEN x.first_row AND x.last_row AND d.status = x.state
    UNION
    SELECT r.row_no, 'it has no row'
    FROM (SELECT DISTINCT batch_no, first_row, last_row FROM differing) AS x
    CROSS JOIN LATERAL generate_series(x.first_row, x.last_row) AS r (row_no)
    WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.send_id = %(send_id)s AND d.row_no = r.row_no)
    UNION
    SELECT d.row_no, 'it has no batch'
    FROM gap CROSS JOIN LATERAL (
        SELECT row_no FROM delivery WHERE send_id = %(send_id)s AND row_no BETWEEN gap.first_row AND gap.last_row
    ) AS d
)
SELECT row_no, why FROM named
WHERE NOT EXISTS (SELECT 1 FROM send WHERE id = %(send_id)s AND forgotten_at IS NOT NULL)
ORDER BY row_no LIMIT %(limit)s
