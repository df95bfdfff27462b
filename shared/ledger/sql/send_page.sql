-- The pages of sends: for operators, so of every tenant.

-- name: select_send_for_operators
-- One send with its tenant. Its books are those of `select_sums_of_sends`, a sum over its batches (40,000 for a million
-- recipients), until retention removes them.
SELECT s.id, s.name, s.status, s.mode, s.accepted, s.created_at, s.send_at, s.completed_at, s.cancelled_at,
       t.name, t.id, s.lane, s.duplicates, s.segments, s.valid_until, s.started_at, s.paused_at, s.pause_reason,
       s.paused_by, s.resumed_at, s.forgotten_at, s.settled_counts, s.content -> 'email' ->> 'subject',
       CASE WHEN s.status = 'paused' AND s.paused_at <= s.cancel_asked_at THEN s.cancel_asked_at END, now()
FROM send s JOIN tenant t ON t.id = s.tenant_id
WHERE s.id = %(send_id)s

-- name: select_sends_for_operators
-- Sends of all tenants, newest first (ids are ordered by time), after a keyset cursor.
SELECT s.id, s.name, s.status, s.mode, s.accepted, s.created_at, s.send_at, s.completed_at, s.cancelled_at, t.name
FROM send s JOIN tenant t ON t.id = s.tenant_id
WHERE s.id < %(before)s
ORDER BY s.id DESC LIMIT %(limit)s

-- name: select_open_sends_for_operators
-- Likewise, those that are not over.
SELECT s.id, s.name, s.status, s.mode, s.accepted, s.created_at, s.send_at, s.completed_at, s.cancelled_at, t.name
FROM send s JOIN tenant t ON t.id = s.tenant_id
WHERE s.id < %(before)s AND s.status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')
ORDER BY s.id DESC LIMIT %(limit)s

-- name: select_recipients
-- Deliveries of a send in some states, by row number after a keyset cursor; those that were discarded, those that were
-- not, or both. The batches' counts say where there are any: no index names a delivery's status.
SELECT d.row_no, d.channel, d.status, d.address, d.reference, d.attempt_count, d.next_attempt_at, d.last_attempt_at,
       d.settled_at, d.provider, d.receipt_status, d.last_error, d.prove_at IS NOT NULL, d.is_discarded, d.epoch
FROM batch b
CROSS JOIN LATERAL (
    SELECT delivery.*, f.is_discarded FROM delivery
    CROSS JOIN LATERAL (
        SELECT delivery.status IN ('failed', 'dead_lettered', 'unsure')
               AND EXISTS (SELECT 1 FROM failure
                           WHERE failure.send_id = delivery.send_id AND failure.row_no = delivery.row_no
                             AND failure.discarded_at IS NOT NULL) AS is_discarded
    ) AS f
    WHERE delivery.send_id = b.send_id AND delivery.row_no BETWEEN greatest(b.first_row, %(after)s + 1) AND b.last_row
      AND delivery.status = ANY (%(statuses)s::text[])
      AND (%(discarded)s::bool IS NULL OR f.is_discarded = %(discarded)s)
    ORDER BY delivery.row_no
) AS d
WHERE b.send_id = %(send_id)s AND b.last_row > %(after)s
  AND ('owed' = ANY (%(statuses)s::text[]) AND b.owed > 0 OR 'sending' = ANY (%(statuses)s::text[]) AND b.sending > 0
       OR 'retrying' = ANY (%(statuses)s::text[]) AND b.retrying > 0
       OR 'sent' = ANY (%(statuses)s::text[]) AND b.sent > 0 OR 'failed' = ANY (%(statuses)s::text[]) AND b.failed > 0
       OR 'dead_lettered' = ANY (%(statuses)s::text[]) AND b.dead_lettered > 0
       OR 'unsure' = ANY (%(statuses)s::text[]) AND b.unsure > 0
       OR 'suppressed' = ANY (%(statuses)s::text[]) AND b.suppressed > 0
       OR 'cancelled' = ANY (%(statuses)s::text[]) AND b.cancelled > 0
       OR 'expired' = ANY (%(statuses)s::text[]) AND b.expired > 0)
ORDER BY b.batch_no, d.row_no LIMIT %(limit)s

-- name: select_batches_of_send
-- Batches that are not settled: those in a worker's hands first, then those due longest.
SELECT b.batch_no, b.channel, b.first_row, b.last_row, b.sent, b.owed, b.retrying, b.sending, b.unsure, b.due_at,
       b.recovery_count, w.name, b.progress_at, count(*) OVER ()
FROM batch b LEFT JOIN worker w ON w.id = b.holder
WHERE b.send_id = %(send_id)s AND b.settled_at IS NULL
ORDER BY b.holder IS NULL, b.due_at, b.batch_no LIMIT %(limit)s

-- name: select_deeds_on_send
-- What operators did to a send.
SELECT at, operator, action, reason, result FROM audit WHERE target = %(target)s ORDER BY id DESC LIMIT %(limit)s

-- name: select_operations_on_send
-- What operators did to deliveries of this send, among others or alone, and to how many of it. Items are looked up by
-- key, operation by operation, since nothing finds them by their send (their order sees to it, whatever the planner
-- believes); so many of each are counted.
SELECT o.id, o.kind, o.status, o.operator, o.created_at, o.total,
       CASE WHEN o.is_alone THEN o.total ELSE i.total END, CASE WHEN o.is_alone THEN o.done ELSE i.done END
FROM (
    SELECT o.*, o.filter ->> 'send_id' = %(send_id)s::text AS is_alone
    FROM operation o
    LEFT JOIN LATERAL (
        SELECT 1 AS found FROM operation_item
        WHERE operation_item.operation_id = o.id AND operation_item.send_id = %(send_id)s
        ORDER BY row_no LIMIT 1
    ) AS one ON true
    WHERE o.created_at >= (SELECT s.created_at FROM send s WHERE s.id = %(send_id)s)
      AND (one.found = 1 OR o.filter ->> 'send_id' = %(send_id)s::text)
    ORDER BY o.created_at DESC, o.id DESC LIMIT %(limit)s
) AS o
CROSS JOIN LATERAL (
    SELECT count(*)::int AS total, count(*) FILTER (WHERE result = 'done')::int AS done
    FROM (
        SELECT result FROM operation_item
        WHERE operation_item.operation_id = o.id AND operation_item.send_id = %(send_id)s
          AND o.is_alone IS NOT TRUE
        ORDER BY row_no LIMIT %(most)s
    ) AS these
) AS i
ORDER BY o.created_at DESC, o.id DESC
