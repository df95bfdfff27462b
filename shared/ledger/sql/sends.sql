-- name: select_send
-- A send of a tenant with its books: a sum over its batches, the small table (40,000 for a million recipients), and none
-- where retention removes them.
SELECT send.id, send.name, send.status, send.mode, send.lane, send.accepted, send.duplicates, send.segments,
       send.send_at, send.valid_until, send.created_at, send.queued_at, send.started_at, send.completed_at,
       send.cancelled_at, send.paused_at, send.pause_reason, send.resumed_at, send.settled_counts, now(),
       (
           SELECT jsonb_object_agg(per.channel, per.counts)
           FROM (
               SELECT channel, jsonb_build_object(
                   'waiting', sum(owed), 'sending', sum(sending), 'retrying', sum(retrying), 'sent', sum(sent),
                   'failed', sum(failed), 'dead_lettered', sum(dead_lettered), 'unsure', sum(unsure - proving),
                   'proving', sum(proving), 'suppressed', sum(suppressed), 'cancelled', sum(cancelled),
                   'expired', sum(expired),
                   'later', sum(CASE WHEN holder IS NULL AND due_at > now() THEN owed ELSE 0 END),
                   'next_at', min(due_at) FILTER (WHERE holder IS NULL AND due_at > now())) || (
                   SELECT jsonb_build_object(
                       'discarded_failed', count(*) FILTER (WHERE f.status = 'failed'),
                       'discarded_dead_lettered', count(*) FILTER (WHERE f.status = 'dead_lettered'),
                       'discarded_unsure', count(*) FILTER (WHERE f.status = 'unsure'))
                   FROM failure f
                   WHERE f.send_id = send.id AND f.channel = batch.channel AND f.discarded_at IS NOT NULL) AS counts
               FROM batch WHERE batch.send_id = send.id AND send.forgotten_at IS NULL GROUP BY channel
           ) AS per
       ) AS counts
FROM send
WHERE send.id = %(send_id)s AND send.tenant_id = %(tenant_id)s;

-- name: select_send_page
-- A tenant's sends, newest first (ids are ordered by time), after a keyset cursor.
SELECT id, name, status, mode, accepted, created_at, send_at, completed_at, cancelled_at
FROM send
WHERE tenant_id = %(tenant_id)s AND id < %(before)s
ORDER BY id DESC LIMIT %(limit)s;

-- name: select_send_page_of_status
-- Likewise, those of one status.
SELECT id, name, status, mode, accepted, created_at, send_at, completed_at, cancelled_at
FROM send
WHERE tenant_id = %(tenant_id)s AND status = %(status)s AND id < %(before)s
ORDER BY id DESC LIMIT %(limit)s;

-- name: reschedule_send
-- A person moves a send that has not begun. Guards: it has not begun, and would not expire before it does.
UPDATE send SET send_at = coalesce(%(send_at)s, now())
WHERE id = %(send_id)s AND tenant_id = %(tenant_id)s AND started_at IS NULL
  AND status IN ('pending', 'queued', 'scheduled', 'paused')
  AND (valid_until IS NULL OR valid_until > coalesce(%(send_at)s, now()))
RETURNING id;

-- name: cancel_send
-- A person stops a send for good. From this commit on no call of it starts: claims ask for the send's status.
UPDATE send
SET status = 'cancelled', cancelled_at = now(), paused_at = NULL, pause_reason = NULL, paused_by = NULL
WHERE id = %(send_id)s AND tenant_id = %(tenant_id)s
  AND status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')
RETURNING id;

-- name: pause_send_by_tenant
-- A person holds a send; `resume_send` lets it go on. `operator` is empty where it is its tenant.
UPDATE send SET status = 'paused', paused_at = now(), pause_reason = %(reason)s, paused_by = %(operator)s
WHERE id = %(send_id)s AND tenant_id = %(tenant_id)s AND status IN ('pending', 'queued', 'scheduled', 'sending')
RETURNING id;

-- name: resume_send
-- A paused send returns to where it belongs; `resumed_at` starts the poison guard's count anew. Guard: no
-- operator is cancelling it, which `undo_cancel` alone takes back.
UPDATE send
SET status = CASE WHEN started_at IS NOT NULL THEN 'sending' WHEN send_at > now() THEN 'scheduled' ELSE 'queued' END,
    queued_at = coalesce(queued_at, now()), paused_at = NULL, pause_reason = NULL, paused_by = NULL,
    resumed_at = now(), cancel_asked_at = NULL, cancel_asked_by = NULL
WHERE id = %(send_id)s AND tenant_id = %(tenant_id)s AND status = 'paused'
  AND (cancel_asked_at IS NULL OR paused_at > cancel_asked_at)
RETURNING id;

-- name: select_delivery_page
-- Deliveries of a send by row number, after a keyset cursor. Guard: the send is this tenant's.
SELECT row_no, channel, status, address, reference, segments, attempt_count, next_attempt_at, last_attempt_at,
       settled_at, provider, provider_ref, receipt_status, last_error
FROM delivery
WHERE send_id = %(send_id)s AND row_no > %(after)s
ORDER BY row_no LIMIT %(limit)s;

-- name: select_delivery_page_of_status
-- Likewise, those of one status. The batches' counts say where there are any: no index names the status.
SELECT d.row_no, d.channel, d.status, d.address, d.reference, d.segments, d.attempt_count, d.next_attempt_at,
       d.last_attempt_at, d.settled_at, d.provider, d.provider_ref, d.receipt_status, d.last_error
FROM batch b
CROSS JOIN LATERAL (
    SELECT * FROM delivery
    WHERE delivery.send_id = b.send_id AND delivery.row_no BETWEEN greatest(b.first_row, %(after)s + 1) AND b.last_row
      AND delivery.status = %(status)s
    ORDER BY delivery.row_no
) AS d
WHERE b.send_id = %(send_id)s AND b.last_row > %(after)s
  AND CASE %(status)s
      WHEN 'owed' THEN b.owed WHEN 'sending' THEN b.sending WHEN 'retrying' THEN b.retrying WHEN 'sent' THEN b.sent
      WHEN 'failed' THEN b.failed WHEN 'dead_lettered' THEN b.dead_lettered WHEN 'unsure' THEN b.unsure
      WHEN 'suppressed' THEN b.suppressed WHEN 'cancelled' THEN b.cancelled ELSE b.expired END > 0
ORDER BY b.batch_no, d.row_no LIMIT %(limit)s;

-- name: send_exists
-- Whether a send is this tenant's.
SELECT 1 FROM send WHERE id = %(send_id)s AND tenant_id = %(tenant_id)s;

-- name: select_delivery
-- One delivery. Guard: its send is this tenant's.
SELECT row_no, channel, status, address, reference, segments, attempt_count, next_attempt_at, last_attempt_at,
       settled_at, provider, provider_ref, receipt_status, last_error
FROM delivery
WHERE send_id = %(send_id)s AND row_no = %(row_no)s
  AND EXISTS (SELECT 1 FROM send WHERE send.id = %(send_id)s AND send.tenant_id = %(tenant_id)s);

-- name: select_attempts
-- Every attempt of a delivery, oldest first.
SELECT number, provider, outcome, became, code, detail, provider_ref, started_at, ended_at, evidence
FROM attempt
WHERE send_id = %(send_id)s AND row_no = %(row_no)s
ORDER BY started_at, ended_at;
