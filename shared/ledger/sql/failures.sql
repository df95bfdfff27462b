-- What people look at of the open failures. Callers: the Failures pages and their section of the snapshot. Each is run
-- without a prepared plan: what is asked for decides which index is good.

-- name: summarise_failures
-- The top line.
SELECT count(*) FILTER (WHERE status = 'dead_lettered')::int, count(*) FILTER (WHERE status = 'failed')::int,
       count(*) FILTER (WHERE status = 'unsure' AND NOT proving)::int, count(*) FILTER (WHERE proving)::int,
       max(failed_at),
       (SELECT count(*)::int FROM failure WHERE discarded_at IS NOT NULL)
FROM failure WHERE discarded_at IS NULL

-- name: summarise_retries
-- How many deliveries are between two tries, and when the first of their batches is due.
SELECT coalesce(sum(retrying), 0)::int, min(due_at) FILTER (WHERE due_at > now())
FROM batch WHERE settled_at IS NULL AND retrying > 0

-- name: count_failures_since
-- The health rules, while they would warn: of the live deliveries that failed or were dead-lettered from a minute on,
-- those that are so still and that nobody gave up, by channel. So many of each are looked at, test or live; the last
-- value says that there may be more, also in a row without a channel where none of these is live. They are counted by
-- send before sends are looked up, each by key, whatever the planner believes of what came in just now.
WITH fresh AS MATERIALIZED (
    SELECT f.send_id, f.channel, k.status, count(*) AS count
    FROM unnest('{failed,dead_lettered}'::text[]) AS k (status)
    CROSS JOIN LATERAL (
        SELECT send_id, channel FROM failure
        WHERE failure.status = k.status AND discarded_at IS NULL
          AND failed_at >= date_trunc('minute', now()) - %(minutes)s * interval '1 minute'
        LIMIT %(most)s
    ) AS f
    GROUP BY f.send_id, f.channel, k.status
), looked AS (
    SELECT coalesce(max(count), 0) = %(most)s AS may_be_more
    FROM (SELECT sum(count) AS count FROM fresh GROUP BY status) AS of_status
), live AS (
    SELECT f.channel, sum(f.count)::int AS count,
           coalesce(sum(f.count) FILTER (WHERE f.status = 'dead_lettered'), 0)::int AS dead_lettered
    FROM fresh f
    CROSS JOIN LATERAL (SELECT 1 FROM send WHERE send.id = f.send_id AND send.mode = 'live' OFFSET 0) AS s
    GROUP BY f.channel
)
SELECT live.channel, live.count, live.dead_lettered, looked.may_be_more FROM looked LEFT JOIN live ON true

-- name: group_failures
-- The groups of open failures by one of their properties, the largest first; by the hour of the last day as well,
-- except by send. With the name of a tenant of theirs, and of the send.
WITH cell AS MATERIALIZED (
    SELECT CASE %(by)s
               WHEN 'error' THEN f.signature
               WHEN 'tenant' THEN f.tenant_id::text
               WHEN 'provider' THEN coalesce(f.provider, '')
               WHEN 'channel' THEN f.channel
               WHEN 'kind' THEN f.status
               ELSE f.send_id::text END AS key,
           f.tenant_id, f.channel, f.status,
           CASE WHEN %(by)s <> 'send' AND f.failed_at > (SELECT now() - interval '24 hours')
                THEN date_bin('1 hour', f.failed_at, now()) END AS bin,
           count(*) AS count, min(f.failed_at) AS oldest, max(f.failed_at) AS newest
    FROM failure f
    WHERE f.discarded_at IS NULL AND NOT f.proving AND f.status = ANY (%(statuses)s::text[])
      AND (%(signature)s::text IS NULL OR f.signature = %(signature)s)
      AND (%(tenant)s::text IS NULL OR f.tenant_id = (SELECT id FROM tenant WHERE name = %(tenant)s))
      AND (%(channel)s::text IS NULL OR f.channel = %(channel)s)
      AND (%(provider)s::text IS NULL OR f.provider = %(provider)s)
      AND (%(send_id)s::uuid IS NULL OR f.send_id = %(send_id)s)
      AND (%(since)s::timestamptz IS NULL OR f.failed_at >= %(since)s)
      AND (%(recipient)s::bytea IS NULL OR f.address_hash = %(recipient)s)
      AND (%(left_by)s::uuid IS NULL OR EXISTS (
          SELECT 1 FROM operation_item i JOIN operation o ON o.id = i.operation_id
          WHERE i.operation_id = %(left_by)s AND i.send_id = f.send_id AND i.row_no = f.row_no AND i.result = 'done'
            AND f.epoch = i.epoch + (o.kind = 'requeue')::int))
    GROUP BY 1, 2, 3, 4, 5
), whole AS (
    SELECT key, sum(count)::int AS count, count(DISTINCT tenant_id)::int AS tenants, min(tenant_id) AS tenant_id,
           array_agg(DISTINCT status) AS statuses, array_agg(DISTINCT channel) AS channels,
           min(oldest) AS oldest, max(newest) AS newest, count(*) OVER ()::int AS groups
    FROM cell GROUP BY key
    ORDER BY 2 DESC, key LIMIT %(limit)s
), daily AS (
    SELECT key, jsonb_object_agg(hour, count) AS hours
    FROM (
        SELECT key, floor(extract(epoch FROM now() - bin) / 3600)::int - 1 AS hour, sum(count)::int AS count
        FROM cell WHERE bin IS NOT NULL GROUP BY 1, 2
    ) AS h
    GROUP BY key
)
SELECT w.key, w.count, w.tenants, w.statuses, w.channels, w.oldest, w.newest, w.groups, d.hours,
       (SELECT name FROM tenant WHERE tenant.id = w.tenant_id),
       CASE WHEN %(by)s = 'send' THEN (SELECT name FROM send WHERE send.id = w.key::uuid) END
FROM whole w LEFT JOIN daily d ON d.key = w.key
ORDER BY w.count DESC, w.key

-- name: describe_causes
-- What is known of causes: title, word, first seen, note, newest requeue, and how many of that failed for it again: of
-- the first failures since, so many of each cause, open or not, which the index alone tells, whatever else came in. A
-- cause that no attempt has named is told by the words of its newest delivery.
SELECT k.signature, coalesce(g.title, left(newest.last_error, 120), 'unknown'),
       coalesce(g.outcome, newest.outcome, CASE WHEN newest.refused THEN 'refused' END), coalesce(g.channel, newest.channel),
       coalesce(g.provider, newest.provider), g.first_seen_at, n.text, n.author, n.at,
       o.id, o.operator, o.status, o.done, o.total, o.created_at, coalesce(again.count, 0), coalesce(again.more, false)
FROM unnest(%(signatures)s::text[]) AS k (signature)
LEFT JOIN failure_group g ON g.signature = k.signature
LEFT JOIN failure_note n ON n.signature = k.signature
LEFT JOIN LATERAL (
    SELECT o.id, o.operator, o.status, o.done, o.total, o.created_at
    FROM failure_operation f JOIN operation o ON o.id = f.operation_id
    WHERE f.signature = k.signature AND o.kind = 'requeue' AND o.status <> 'undone'
    ORDER BY o.created_at DESC LIMIT 1
) AS o ON true
LEFT JOIN LATERAL (
    SELECT count(i.found)::int AS count, count(*) = %(most)s AS more
    FROM (
        SELECT f.send_id, f.row_no FROM failure f
        WHERE f.signature = k.signature AND f.failed_at >= o.created_at
        ORDER BY f.failed_at LIMIT %(most)s
    ) AS since
    LEFT JOIN LATERAL (
        SELECT 1 AS found
        FROM failure f
        JOIN operation_item i ON i.operation_id = o.id AND i.send_id = f.send_id AND i.row_no = f.row_no
        WHERE f.send_id = since.send_id AND f.row_no = since.row_no AND f.discarded_at IS NULL AND NOT f.proving
          AND i.epoch = f.epoch - 1 AND i.result = 'done'
        OFFSET 0
    ) AS i ON true
) AS again ON o.id IS NOT NULL
LEFT JOIN LATERAL (
    SELECT d.last_error, f.outcome, f.channel, f.provider, f.refused
    FROM (SELECT * FROM failure WHERE failure.signature = k.signature ORDER BY failed_at DESC LIMIT 1) AS f
    JOIN delivery d ON d.send_id = f.send_id AND d.row_no = f.row_no
) AS newest ON true

-- name: list_failures
-- A page of open or discarded failures, the newest first, behind a keyset cursor. What is being proved is not shown.
-- A requeue counts attempts anew: those of the lives before are added.
SELECT f.send_id, f.row_no, f.failed_at, f.channel, f.status, f.provider, f.outcome, f.code, f.signature,
       f.attempts + CASE WHEN f.epoch = 0 THEN 0 ELSE (
           SELECT coalesce(sum(life.most), 0) FROM (
               SELECT max(a.number) AS most FROM attempt a
               WHERE a.send_id = f.send_id AND a.row_no = f.row_no AND a.epoch < f.epoch GROUP BY a.epoch
           ) AS life) END::int, f.attempts,
       f.discarded_at, f.discarded_by, t.name, s.name, d.address, d.last_error, s.completed_at
FROM (
    SELECT one.* FROM unnest(%(statuses)s::text[]) AS k (status)
    CROSS JOIN LATERAL (
        SELECT * FROM failure f
        WHERE f.status = k.status AND NOT f.proving AND (f.discarded_at IS NOT NULL) = %(discarded)s::bool
          AND (%(signature)s::text IS NULL OR f.signature = %(signature)s)
          AND (%(tenant)s::text IS NULL OR f.tenant_id = (SELECT id FROM tenant WHERE name = %(tenant)s))
          AND (%(channel)s::text IS NULL OR f.channel = %(channel)s)
          AND (%(provider)s::text IS NULL OR f.provider = %(provider)s)
          AND (%(send_id)s::uuid IS NULL OR f.send_id = %(send_id)s)
          AND (%(since)s::timestamptz IS NULL OR f.failed_at >= %(since)s)
          AND (%(recipient)s::bytea IS NULL OR f.address_hash = %(recipient)s)
          AND (%(left_by)s::uuid IS NULL OR EXISTS (
              SELECT 1 FROM operation_item i JOIN operation o ON o.id = i.operation_id
              WHERE i.operation_id = %(left_by)s AND i.send_id = f.send_id AND i.row_no = f.row_no AND i.result = 'done'
                AND f.epoch = i.epoch + (o.kind = 'requeue')::int))
          AND (%(before)s::timestamptz IS NULL OR f.failed_at <= %(before)s)
          AND (%(before)s::timestamptz IS NULL OR f.failed_at < %(before)s
               OR (f.send_id, f.row_no) > (%(after_send)s::uuid, %(after_row)s::int))
        ORDER BY f.failed_at DESC, f.send_id, f.row_no
        LIMIT %(limit)s
    ) AS one
    ORDER BY one.failed_at DESC, one.send_id, one.row_no
    LIMIT %(limit)s
) AS f
JOIN tenant t ON t.id = f.tenant_id
JOIN send s ON s.id = f.send_id
JOIN delivery d ON d.send_id = f.send_id AND d.row_no = f.row_no
ORDER BY f.failed_at DESC, f.send_id, f.row_no

-- name: list_retries
-- Deliveries between two tries, those due first: of so many batches that are due first. What a worker holds is due now.
SELECT d.send_id, d.row_no, d.channel, d.address, d.provider, d.attempt_count, d.next_attempt_at, d.last_error,
       t.name, s.name, s.status = 'paused'
FROM (
    SELECT send_id, first_row, last_row FROM batch WHERE settled_at IS NULL AND retrying > 0
    ORDER BY due_at NULLS FIRST, send_id, batch_no LIMIT %(limit)s
) AS b
CROSS JOIN LATERAL (
    SELECT * FROM delivery
    WHERE delivery.send_id = b.send_id AND delivery.row_no BETWEEN b.first_row AND b.last_row
      AND delivery.status = 'retrying'
    OFFSET 0
) AS d
JOIN send s ON s.id = d.send_id
JOIN tenant t ON t.id = s.tenant_id
ORDER BY d.next_attempt_at, d.send_id, d.row_no LIMIT %(limit)s

-- name: hash_address
-- How an address is found: equal ones have equal hashes, and nobody without the ledger's key can make one.
SELECT encode(address_hash(%(channel)s, %(address)s), 'hex')

-- name: select_failed_delivery
-- One delivery, whatever its state, as its page shows it.
SELECT d.channel, d.status, d.address, d.attempt_count, d.epoch, d.settled_at, d.provider, d.provider_ref,
       d.last_error, d.receipt_status, d.prove_at, d.next_attempt_at, d.reference, t.name, s.name, s.created_at,
       s.status, f.signature, f.outcome, f.refused, f.discarded_at, f.discarded_by, f.discarded_operation
FROM delivery d
JOIN send s ON s.id = d.send_id
JOIN tenant t ON t.id = s.tenant_id
LEFT JOIN failure f ON f.send_id = d.send_id AND f.row_no = d.row_no
WHERE d.send_id = %(send_id)s AND d.row_no = %(row_no)s

-- name: select_history
-- What happened to one delivery: attempts, receipts and the operations that took it, by time.
SELECT * FROM (
    SELECT ended_at AS at, 'attempt' AS kind, epoch::int AS epoch, number::int AS number, provider, outcome, became, code,
           detail, signature, extract(epoch FROM ended_at - started_at)::float8 AS seconds, evidence, NULL::uuid AS operation
    FROM attempt WHERE send_id = %(send_id)s AND row_no = %(row_no)s
    UNION ALL
    SELECT received_at, 'receipt', epoch, NULL, provider, status, NULL, code, NULL, NULL, NULL, NULL, NULL
    FROM receipt WHERE send_id = %(send_id)s AND row_no = %(row_no)s
    UNION ALL
    SELECT coalesce(o.started_at, o.created_at), 'operation', i.epoch, NULL, o.operator, o.kind, i.result, NULL, o.reason,
           NULL, NULL, NULL, o.id
    FROM operation o JOIN operation_item i ON i.operation_id = o.id AND i.send_id = %(send_id)s AND i.row_no = %(row_no)s
) AS h
ORDER BY at, number NULLS LAST LIMIT 200

-- name: write_failure_note
-- A person's note to a cause; the newest stands.
INSERT INTO failure_note (signature, text, author) VALUES (%(signature)s, %(text)s, %(author)s)
ON CONFLICT (signature) DO UPDATE SET text = excluded.text, author = excluded.author, at = now()

-- name: delete_failure_note
-- An empty note is none.
DELETE FROM failure_note WHERE signature = %(signature)s
