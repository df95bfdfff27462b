-- name: judge_failures
-- Preview and freezing of an operation are one statement: with an operation its items are stored, and which groups of
-- failures it took from; without it nothing is. Candidates are the open failures, or deliveries by id.
-- What failed after `as_of`, and what retention is removing, is never in the set. Keys come in order: neighbours share
-- pages.
-- Deliveries are read only when they are named by id, and other operations only where one is open. What is judged is not
-- kept in between: a preview reads the failures once, and writes no temporary file.
-- What failed again: those of a later epoch than their first, and of what the newest requeue that left one of them did.
WITH candidate AS (
    SELECT f.send_id, f.row_no, f.epoch, f.channel, f.status, f.failed_at, f.proving, f.refused, f.discarded_at,
           f.reported, f.address_hash, f.signature, f.tenant_id, s.status AS send_status, s.valid_until, s.forgotten_at
    FROM failure f
    JOIN send s ON s.id = f.send_id
    WHERE NOT %(by_id)s::bool AND f.status = ANY (%(looked_at)s::text[])
      AND (%(send_id)s::uuid IS NULL OR f.send_id = %(send_id)s)
      AND (%(signature)s::text IS NULL OR f.signature = %(signature)s)
      AND (%(provider)s::text IS NULL OR f.provider = %(provider)s)
      AND (%(recipient)s::bytea IS NULL OR f.address_hash = %(recipient)s)
      AND (%(left_by)s::uuid IS NULL OR EXISTS (
          SELECT 1 FROM operation_item i JOIN operation o ON o.id = i.operation_id
          WHERE i.operation_id = %(left_by)s AND i.send_id = f.send_id AND i.row_no = f.row_no AND i.result = 'done'
            AND f.epoch = i.epoch + (o.kind = 'requeue')::int))
      AND (%(kind)s <> 'restore' OR f.discarded_at IS NOT NULL)
    UNION ALL
    SELECT d.send_id, d.row_no, d.epoch, d.channel, d.status, coalesce(f.failed_at, d.settled_at),
           coalesce(f.proving, false), coalesce(f.refused, false), f.discarded_at,
           coalesce(f.reported, false), f.address_hash, f.signature, s.tenant_id, s.status, s.valid_until, s.forgotten_at
    FROM (
        SELECT DISTINCT i.send_id, i.row_no
        FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[]) AS i (send_id, row_no)
        WHERE %(by_id)s::bool
        ORDER BY i.send_id, i.row_no
    ) AS i
    JOIN delivery d ON d.send_id = i.send_id AND d.row_no = i.row_no
    JOIN send s ON s.id = i.send_id
    LEFT JOIN failure f ON f.send_id = d.send_id AND f.row_no = d.row_no
), judged AS NOT MATERIALIZED (
    SELECT c.send_id, c.row_no, c.epoch, c.channel, c.status, c.tenant_id, c.failed_at, c.signature,
           CASE
               WHEN c.forgotten_at IS NOT NULL THEN 'missing'
               WHEN c.status <> ALL (%(looked_at)s::text[]) THEN 'state'
               WHEN c.failed_at > %(as_of)s THEN 'late'
               WHEN c.proving THEN 'proving'
               WHEN c.discarded_at IS NULL AND %(kind)s = 'restore' THEN 'kept'
               WHEN c.discarded_at IS NOT NULL AND %(kind)s <> 'restore' THEN 'discarded'
               WHEN c.status = 'unsure' AND NOT %(takes_unsure)s::bool THEN 'unsure'
               WHEN (SELECT count(*) > 0 FROM operation o
                     WHERE o.status IN ('scheduled', 'running') AND o.id IS DISTINCT FROM %(operation)s::uuid)
                    AND EXISTS (SELECT FROM operation o JOIN operation_item i ON i.operation_id = o.id
                                WHERE o.status IN ('scheduled', 'running') AND o.id IS DISTINCT FROM %(operation)s::uuid
                                  AND i.send_id = c.send_id AND i.row_no = c.row_no AND i.result IS NULL)
                    THEN 'taken'
               WHEN %(kind)s <> 'requeue' THEN NULL
               WHEN c.refused THEN 'refused'
               WHEN c.send_status = 'cancelled' THEN 'cancelled'
               WHEN c.valid_until <= now() THEN 'expired'
               WHEN c.reported AND NOT %(takes_reported)s::bool THEN 'reported'
               WHEN EXISTS (SELECT FROM suppression p WHERE p.tenant_id = c.tenant_id AND p.address_hash = c.address_hash)
                    THEN 'suppressed'
           END AS left_out
    FROM candidate c
    WHERE (%(channel)s::text IS NULL OR c.channel = %(channel)s)
      AND (%(since)s::timestamptz IS NULL OR c.failed_at >= %(since)s)
      AND (%(tenant)s::text IS NULL OR c.tenant_id = (SELECT id FROM tenant WHERE name = %(tenant)s))
), cut AS MATERIALIZED (
    SELECT failed_at, send_id, row_no FROM judged
    WHERE left_out IS NULL AND %(first)s::int IS NOT NULL
    ORDER BY failed_at DESC, send_id, row_no OFFSET %(first)s::int LIMIT 1
), verdict AS NOT MATERIALIZED (
    SELECT j.send_id, j.row_no, j.epoch, j.channel, j.status, j.tenant_id, j.failed_at, j.signature,
           CASE WHEN j.left_out IS NULL AND %(first)s::int IS NOT NULL
                     AND EXISTS (SELECT FROM cut WHERE j.failed_at < cut.failed_at
                                 OR (j.failed_at = cut.failed_at AND (j.send_id, j.row_no) >= (cut.send_id, cut.row_no)))
                THEN 'more' ELSE j.left_out END AS left_out
    FROM judged j
), part AS MATERIALIZED (
    SELECT tenant_id, channel, status, left_out, send_id,
           CASE WHEN %(operation)s::uuid IS NOT NULL THEN signature END AS signature,
           count(*) AS count, min(failed_at) AS oldest,
           count(*) FILTER (WHERE failed_at > (SELECT %(as_of)s::timestamptz - interval '1 hour')) AS in_hour,
           count(*) FILTER (WHERE failed_at > (SELECT %(as_of)s::timestamptz - interval '24 hours')) AS in_day,
           count(*) FILTER (WHERE epoch > 0 AND %(kind)s = 'requeue' AND %(operation)s::uuid IS NULL) AS again
    FROM verdict GROUP BY 1, 2, 3, 4, 5, 6
), again AS MATERIALIZED (
    SELECT send_id, row_no, epoch, failed_at FROM verdict
    WHERE left_out IS NULL AND epoch > 0 AND (SELECT sum(again) > 0 FROM part WHERE left_out IS NULL)
), before AS MATERIALIZED (
    SELECT o.id, o.operator, o.created_at, o.done
    FROM (SELECT * FROM again ORDER BY failed_at DESC, send_id, row_no LIMIT 1) AS a
    CROSS JOIN LATERAL (
        SELECT * FROM operation
        WHERE operation.kind = 'requeue' AND operation.done > 0 AND EXISTS (
            SELECT 1 FROM operation_item i
            WHERE i.operation_id = operation.id AND i.send_id = a.send_id AND i.row_no = a.row_no
              AND i.epoch = a.epoch - 1 AND i.result = 'done')
        ORDER BY operation.created_at DESC LIMIT 1
    ) AS o
), placed AS (
    INSERT INTO operation_item (operation_id, send_id, row_no, epoch)
    SELECT %(operation)s::uuid, send_id, row_no, epoch
    FROM verdict
    WHERE left_out IS NULL AND %(operation)s::uuid IS NOT NULL
    ORDER BY send_id, row_no
), told AS (
    INSERT INTO failure_operation (signature, operation_id)
    SELECT DISTINCT signature, %(operation)s::uuid
    FROM part
    WHERE left_out IS NULL AND %(operation)s::uuid IS NOT NULL
)
SELECT t.name, v.channel, v.status, v.left_out, v.count, v.oldest, v.in_hour, v.in_day,
       (SELECT count(DISTINCT send_id)::int FROM part WHERE left_out IS NULL),
       (SELECT coalesce(sum(again), 0)::int FROM part WHERE left_out IS NULL),
       (SELECT jsonb_build_object('id', b.id, 'operator', b.operator, 'at', b.created_at, 'done', b.done, 'again', (
            SELECT count(*) FROM again a
            JOIN operation_item i ON i.operation_id = b.id AND i.send_id = a.send_id AND i.row_no = a.row_no
                                  AND i.epoch = a.epoch - 1 AND i.result = 'done')) FROM before b)
FROM (
    SELECT tenant_id, channel, status, left_out, sum(count)::int AS count, min(oldest) AS oldest,
           sum(in_hour)::int AS in_hour, sum(in_day)::int AS in_day
    FROM part GROUP BY 1, 2, 3, 4
) AS v
JOIN tenant t ON t.id = v.tenant_id
ORDER BY v.left_out NULLS FIRST, t.name, v.channel, v.status

-- name: lock_sends_to_requeue
-- First lock of a chunk (send, then batch, then delivery): nobody finishes or cancels these sends meanwhile.
SELECT id FROM send WHERE id = ANY (%(send_ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE

-- name: lock_batches_to_requeue
-- Second lock of a chunk: the batches of its rows. Whoever proves, recovers or claims these rows waits here.
SELECT b.send_id, b.batch_no, b.first_row, b.last_row
FROM (
    SELECT send_id, min(row_no) AS low, max(row_no) AS high, array_agg(row_no) AS row_nos
    FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[]) AS i (send_id, row_no)
    GROUP BY send_id
) AS span
JOIN batch b ON b.send_id = span.send_id AND b.first_row <= span.high AND b.last_row >= span.low
WHERE EXISTS (SELECT 1 FROM unnest(span.row_nos) AS r (row_no) WHERE r.row_no BETWEEN b.first_row AND b.last_row)
ORDER BY b.send_id, b.batch_no
FOR NO KEY UPDATE OF b

-- name: lock_deliveries_to_requeue
-- Third lock of a chunk that requeues: a report of a provider, which locks no batch, moves no row from its place between
-- being found and being changed.
SELECT FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[]) AS i (send_id, row_no)
CROSS JOIN LATERAL (
    SELECT FROM delivery WHERE delivery.send_id = i.send_id AND delivery.row_no = i.row_no FOR NO KEY UPDATE
) AS d

-- name: lock_failures_to_mark
-- Third lock of a chunk that discards or restores, for the same reason: a report is noted on its failure.
SELECT FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[]) AS i (send_id, row_no)
CROSS JOIN LATERAL (
    SELECT FROM failure WHERE failure.send_id = i.send_id AND failure.row_no = i.row_no FOR NO KEY UPDATE
) AS f

-- name: requeue_deliveries
-- A chunk of an operation: its rows are owed again under the next epoch, with all their attempts.
-- Guards: failed, dead-lettered or (where accepted) parked as unsure, in the epoch that was frozen; not reported as taken
-- by its provider since (unless a person named it and accepts that); the send is
-- neither cancelled nor past its valid_until, and retention has not begun to remove it. The batches are locked; the
-- claim of an unsure row is forgotten, so that a proof which comes later finds nothing. A finished send is being sent
-- again, one in progress is written too: whoever is finishing it at this moment must not miss the rows. `resumed_at`
-- starts its patience with the provider and the poison guard's count anew. Rows are found by key, then by place,
-- whatever the planner believes. What cannot be requeued is skipped, with the reason.
WITH item AS (
    SELECT * FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[], %(epochs)s::int[]) AS i (send_id, row_no, epoch)
), state AS (
    SELECT i.send_id, i.row_no, o.item_place, d.place, d.status,
           CASE
               WHEN s.forgotten_at IS NOT NULL THEN 'missing'
               WHEN d.epoch IS DISTINCT FROM i.epoch OR d.prove_at IS NOT NULL
                    OR d.status NOT IN ('failed', 'dead_lettered', 'unsure') THEN 'state'
               WHEN d.status = 'unsure' AND NOT %(takes_unsure)s::bool THEN 'unsure'
               WHEN f.discarded_at IS NOT NULL THEN 'discarded'
               WHEN s.status = 'cancelled' THEN 'cancelled'
               WHEN s.valid_until <= now() THEN 'expired'
               WHEN d.receipt_status NOT IN ('failed', 'undelivered') AND NOT %(takes_reported)s::bool THEN 'reported'
           END AS left_out
    FROM item i
    CROSS JOIN LATERAL (
        SELECT ctid AS item_place FROM operation_item
        WHERE operation_id = %(operation)s AND operation_item.send_id = i.send_id AND operation_item.row_no = i.row_no
          AND result IS NULL
        OFFSET 0
    ) AS o
    LEFT JOIN send s ON s.id = i.send_id
    LEFT JOIN LATERAL (
        SELECT ctid AS place, status, epoch, prove_at, receipt_status FROM delivery
        WHERE delivery.send_id = i.send_id AND delivery.row_no = i.row_no
        OFFSET 0
    ) AS d ON true
    LEFT JOIN failure f ON f.send_id = i.send_id AND f.row_no = i.row_no
), requeued AS (
    UPDATE delivery d
    SET status = 'owed', epoch = d.epoch + 1, attempt_count = 0, claim_id = NULL, next_attempt_at = NULL,
        last_attempt_at = NULL, settled_at = NULL, provider_ref = NULL, receipt_status = NULL, prove_count = 0
    FROM state s
    WHERE d.ctid = s.place AND s.left_out IS NULL AND d.status = s.status
    RETURNING d.send_id, d.row_no, s.status AS was, d.channel, d.provider
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, requeued)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, r.channel, coalesce(r.provider, ''), 0, count(*)
    FROM requeued r
    JOIN send s ON s.id = r.send_id
    GROUP BY 3, 4, 5
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE SET requeued = m.requeued + excluded.requeued
), counted AS (
    SELECT b.send_id, b.batch_no, count(*)::int AS all_rows,
           count(*) FILTER (WHERE r.was = 'failed')::int AS failed,
           count(*) FILTER (WHERE r.was = 'dead_lettered')::int AS dead_lettered,
           count(*) FILTER (WHERE r.was = 'unsure')::int AS unsure
    FROM unnest(%(batch_sends)s::uuid[], %(batches)s::int[], %(first_rows)s::int[], %(last_rows)s::int[])
        AS b (send_id, batch_no, first_row, last_row)
    JOIN requeued r ON r.send_id = b.send_id AND r.row_no BETWEEN b.first_row AND b.last_row
    GROUP BY b.send_id, b.batch_no
), noted AS (
    UPDATE batch b
    SET owed = b.owed + c.all_rows, failed = b.failed - c.failed, dead_lettered = b.dead_lettered - c.dead_lettered,
        unsure = b.unsure - c.unsure, settled_at = NULL, recovery_count = 0,
        due_at = CASE WHEN b.holder IS NULL THEN least(b.due_at, now()) ELSE b.due_at END
    FROM counted c
    WHERE b.send_id = c.send_id AND b.batch_no = c.batch_no
), reopened AS (
    UPDATE send s
    SET status = CASE WHEN s.status = 'completed' THEN 'sending' ELSE s.status END,
        completed_at = NULL, settled_counts = NULL, resumed_at = now()
    FROM (SELECT DISTINCT send_id FROM requeued) AS r
    WHERE s.id = r.send_id
), marked AS (
    UPDATE operation_item i
    SET result = CASE WHEN r.row_no IS NULL THEN 'skipped' ELSE 'done' END,
        why = CASE WHEN r.row_no IS NULL THEN coalesce(s.left_out, 'state') END
    FROM state s
    LEFT JOIN requeued r ON r.send_id = s.send_id AND r.row_no = s.row_no
    WHERE i.ctid = s.item_place AND i.result IS NULL
    RETURNING i.result
)
SELECT count(*) FILTER (WHERE result = 'done')::int, count(*) FILTER (WHERE result = 'skipped')::int FROM marked

-- name: discard_failures
-- A chunk of an operation: a person gives these failures up.
-- Guards: still in the epoch that was frozen, not proved, not given up yet. The batches are locked.
WITH item AS (
    SELECT * FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[], %(epochs)s::int[]) AS i (send_id, row_no, epoch)
), state AS (
    SELECT i.send_id, i.row_no, o.item_place, f.place,
           CASE
               WHEN f.epoch IS DISTINCT FROM i.epoch OR f.proving THEN 'state'
               WHEN f.discarded_at IS NOT NULL THEN 'discarded'
           END AS left_out
    FROM item i
    CROSS JOIN LATERAL (
        SELECT ctid AS item_place FROM operation_item
        WHERE operation_id = %(operation)s AND operation_item.send_id = i.send_id AND operation_item.row_no = i.row_no
          AND result IS NULL
        OFFSET 0
    ) AS o
    LEFT JOIN LATERAL (
        SELECT ctid AS place, epoch, proving, discarded_at FROM failure
        WHERE failure.send_id = i.send_id AND failure.row_no = i.row_no
        OFFSET 0
    ) AS f ON true
), changed AS (
    UPDATE failure f
    SET discarded_at = now(), discarded_by = o.operator, discarded_operation = o.id
    FROM state s, operation o
    WHERE f.ctid = s.place AND s.left_out IS NULL AND o.id = %(operation)s
    RETURNING f.send_id, f.row_no
), marked AS (
    UPDATE operation_item i
    SET result = CASE WHEN c.row_no IS NULL THEN 'skipped' ELSE 'done' END,
        why = CASE WHEN c.row_no IS NULL THEN coalesce(s.left_out, 'state') END
    FROM state s
    LEFT JOIN changed c ON c.send_id = s.send_id AND c.row_no = s.row_no
    WHERE i.ctid = s.item_place AND i.result IS NULL
    RETURNING i.result
)
SELECT count(*) FILTER (WHERE result = 'done')::int, count(*) FILTER (WHERE result = 'skipped')::int FROM marked

-- name: restore_failures
-- A chunk of an operation: what was given up is open again.
-- Guards: still in the epoch that was frozen, not proved, given up. The batches are locked.
WITH item AS (
    SELECT * FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[], %(epochs)s::int[]) AS i (send_id, row_no, epoch)
), state AS (
    SELECT i.send_id, i.row_no, o.item_place, f.place,
           CASE
               WHEN f.epoch IS DISTINCT FROM i.epoch OR f.proving THEN 'state'
               WHEN f.discarded_at IS NULL THEN 'kept'
           END AS left_out
    FROM item i
    CROSS JOIN LATERAL (
        SELECT ctid AS item_place FROM operation_item
        WHERE operation_id = %(operation)s AND operation_item.send_id = i.send_id AND operation_item.row_no = i.row_no
          AND result IS NULL
        OFFSET 0
    ) AS o
    LEFT JOIN LATERAL (
        SELECT ctid AS place, epoch, proving, discarded_at FROM failure
        WHERE failure.send_id = i.send_id AND failure.row_no = i.row_no
        OFFSET 0
    ) AS f ON true
), changed AS (
    UPDATE failure f
    SET discarded_at = NULL, discarded_by = NULL, discarded_operation = NULL
    FROM state s
    WHERE f.ctid = s.place AND s.left_out IS NULL
    RETURNING f.send_id, f.row_no
), marked AS (
    UPDATE operation_item i
    SET result = CASE WHEN c.row_no IS NULL THEN 'skipped' ELSE 'done' END,
        why = CASE WHEN c.row_no IS NULL THEN coalesce(s.left_out, 'state') END
    FROM state s
    LEFT JOIN changed c ON c.send_id = s.send_id AND c.row_no = s.row_no
    WHERE i.ctid = s.item_place AND i.result IS NULL
    RETURNING i.result
)
SELECT count(*) FILTER (WHERE result = 'done')::int, count(*) FILTER (WHERE result = 'skipped')::int FROM marked
