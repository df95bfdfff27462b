-- name: select_book_sums
-- The books of the whole service, or of one send: per mode, channel and status of the send, a sum over the batches, and
-- for sends whose batches retention has removed the totals written down at their end.
WITH chosen AS (
    SELECT id, mode, status, accepted, settled_counts FROM send
    WHERE %(send_id)s::uuid IS NULL OR id = %(send_id)s
), counted AS (
    SELECT b.send_id, b.channel,
           sum(b.owed) AS waiting, sum(b.sending) AS sending, sum(b.retrying) AS retrying, sum(b.proving) AS proving,
           sum(b.sent) AS sent, sum(b.failed) AS failed, sum(b.dead_lettered) AS dead_lettered,
           sum(b.unsure - b.proving) AS unsure, sum(b.suppressed) AS suppressed, sum(b.cancelled) AS cancelled,
           sum(b.expired) AS expired,
           sum(CASE WHEN b.holder IS NULL AND b.due_at > now() THEN b.owed ELSE 0 END) AS later,
           min(b.due_at) FILTER (WHERE b.holder IS NULL AND b.due_at > now()) AS next_at
    FROM batch b
    WHERE %(send_id)s::uuid IS NULL OR b.send_id = %(send_id)s
    GROUP BY b.send_id, b.channel
), per_send AS (
    SELECT s.mode, s.status, a.key AS channel, a.value::int AS accepted, c.next_at,
           CASE WHEN c.send_id IS NULL THEN coalesce(s.settled_counts -> a.key, '{}'::jsonb)
                ELSE to_jsonb(c) - 'send_id' - 'channel' - 'next_at' END AS counts
    FROM chosen s
    CROSS JOIN LATERAL jsonb_each_text(s.accepted) AS a
    LEFT JOIN counted c ON c.send_id = s.id AND c.channel = a.key
), totals AS (
    SELECT p.mode, p.status, p.channel, n.key, sum(n.value::bigint) AS value
    FROM per_send p CROSS JOIN LATERAL jsonb_each_text(p.counts) AS n
    GROUP BY 1, 2, 3, 4
)
SELECT p.mode, p.channel, p.status, sum(p.accepted)::bigint, min(p.next_at),
       coalesce((SELECT jsonb_object_agg(t.key, t.value) FROM totals t
                 WHERE t.mode = p.mode AND t.status = p.status AND t.channel = p.channel), '{}'::jsonb)
FROM per_send p
GROUP BY p.mode, p.channel, p.status
ORDER BY p.mode, p.channel, p.status

-- name: find_sends_out_of_balance
-- Sends whose batches, or whose written totals, do not sum to what was accepted.
SELECT s.id, a.key, a.value::int AS accepted, coalesce(c.counted, w.counted, 0) AS counted
FROM send s
CROSS JOIN LATERAL jsonb_each_text(s.accepted) AS a
LEFT JOIN LATERAL (
    SELECT sum(b.owed + b.sending + b.retrying + b.sent + b.failed + b.dead_lettered + b.unsure + b.suppressed
               + b.cancelled + b.expired)::int AS counted
    FROM batch b WHERE b.send_id = s.id AND b.channel = a.key
) AS c ON true
LEFT JOIN LATERAL (
    SELECT sum(n.value::int)::int AS counted FROM jsonb_each_text(s.settled_counts -> a.key) AS n
) AS w ON true
WHERE (%(send_id)s::uuid IS NULL OR s.id = %(send_id)s) AND coalesce(c.counted, w.counted, 0) <> a.value::int
ORDER BY s.id LIMIT %(limit)s

-- name: find_deliveries_out_of_balance
-- One send: deliveries that its batches do not count as what they are, those without a batch, and those without a row.
-- A batch that counts wrongly names all its rows of the states in question: which of them is too many, nobody knows.
WITH counted AS (
    SELECT b.batch_no, b.first_row, b.last_row, n.state, n.counted
    FROM batch b
    CROSS JOIN LATERAL (VALUES
        ('owed', b.owed), ('sending', b.sending), ('retrying', b.retrying), ('sent', b.sent), ('failed', b.failed),
        ('dead_lettered', b.dead_lettered), ('unsure', b.unsure), ('suppressed', b.suppressed),
        ('cancelled', b.cancelled), ('expired', b.expired)) AS n (state, counted)
    WHERE b.send_id = %(send_id)s
), actual AS (
    SELECT b.batch_no, d.status AS state, count(*)::int AS rows
    FROM batch b
    CROSS JOIN LATERAL (
        SELECT status FROM delivery WHERE send_id = %(send_id)s AND row_no BETWEEN b.first_row AND b.last_row OFFSET 0
    ) AS d
    WHERE b.send_id = %(send_id)s
    GROUP BY b.batch_no, d.status
), differing AS (
    SELECT c.batch_no, c.first_row, c.last_row, c.state
    FROM counted c LEFT JOIN actual a ON a.batch_no = c.batch_no AND a.state = c.state
    WHERE c.counted <> coalesce(a.rows, 0)
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
    FROM delivery d
    WHERE d.send_id = %(send_id)s
      AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = %(send_id)s AND d.row_no BETWEEN b.first_row AND b.last_row)
      AND EXISTS (SELECT 1 FROM batch b WHERE b.send_id = %(send_id)s)
)
SELECT row_no, why FROM named ORDER BY row_no LIMIT %(limit)s
