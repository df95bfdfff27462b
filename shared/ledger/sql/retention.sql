-- name: last_retention_run
-- Where retention stands: the newest run, and whether it is time for another or for going on with it.
SELECT id, ended_at IS NOT NULL, started_at < now() - %(every_s)s * interval '1 second',
       progress_at < now() - %(silent_s)s * interval '1 second'
FROM retention_run ORDER BY started_at DESC, id DESC LIMIT 1

-- name: begin_retention_run
-- A day's run begins.
INSERT INTO retention_run (worker) VALUES (%(worker)s) RETURNING id

-- name: resume_retention_run
-- A run that was broken off, or whose time was up, goes on. Guard: nobody else is at it.
UPDATE retention_run SET worker = %(worker)s, progress_at = now(), error = NULL
WHERE id = %(id)s AND ended_at IS NULL AND progress_at < now() - %(silent_s)s * interval '1 second'
RETURNING id

-- name: limit_retention_statements
-- What takes longer is broken off, in this transaction alone.
SELECT set_config('statement_timeout', %(milliseconds)s, true)

-- name: note_retention
-- What it removed so far, added up over its pieces, and its longest chunk.
UPDATE retention_run r
SET progress_at = CASE WHEN %(rests)s THEN now() - interval '1 hour' ELSE now() END,
    removed = (SELECT coalesce(jsonb_object_agg(k, coalesce((r.removed ->> k)::bigint, 0) + coalesce((%(removed)s::jsonb ->> k)::bigint, 0)), '{}')
               FROM (SELECT jsonb_object_keys(r.removed || %(removed)s::jsonb) AS k) AS keys),
    longest_ms = greatest(r.longest_ms, %(longest_ms)s), error = %(error)s,
    ended_at = CASE WHEN %(over)s THEN now() END
WHERE r.id = %(id)s AND r.ended_at IS NULL
RETURNING r.removed

-- name: select_retention_run
-- The newest run, for people.
SELECT started_at, ended_at, worker, removed, longest_ms, error FROM retention_run ORDER BY started_at DESC, id DESC LIMIT 1

-- name: find_sends_to_forget
-- Sends that were finished long ago, oldest first. Left alone is what is not settled, and every send with a delivery
-- whose outcome is unsure and that nobody has discarded: a person has to decide about it first; and for two days what an
-- operation was done to, as long as its result is not written down, which else would say that all was removed. What is
-- begun is gone on with. OFFSET 0: each send's own rows are looked at by key, never those of all sends for a page of some.
SELECT s.id, coalesce(s.completed_at, s.cancelled_at), s.forgotten_at IS NOT NULL
FROM send s
WHERE s.settled_counts IS NOT NULL AND s.emptied_at IS NULL
  AND coalesce(s.completed_at, s.cancelled_at) < now() - %(days)s * interval '1 day'
  AND (coalesce(s.completed_at, s.cancelled_at), s.id) > (%(after)s::timestamptz, %(after_id)s::uuid)
  AND (s.forgotten_at IS NOT NULL OR (
      NOT EXISTS (
          SELECT 1 FROM batch b
          WHERE b.send_id = s.id
            AND (b.owed > 0 OR b.sending > 0 OR b.retrying > 0 OR b.proving > 0 OR b.holder IS NOT NULL)
          OFFSET 0
      )
      AND (SELECT coalesce(sum(b.unsure), 0) FROM batch b WHERE b.send_id = s.id AND b.unsure > 0)
          <= (SELECT count(*) FROM failure f
              WHERE f.send_id = s.id AND f.status = 'unsure' AND f.discarded_at IS NOT NULL)
      AND NOT EXISTS (
          SELECT 1 FROM operation o JOIN operation_item i ON i.operation_id = o.id AND i.send_id = s.id
          WHERE o.ended_at > now() - interval '2 days' AND NOT coalesce(o.result ? 'at', false)
          OFFSET 0
      )
  ))
ORDER BY coalesce(s.completed_at, s.cancelled_at), s.id
LIMIT %(limit)s

-- name: lock_send_to_forget
-- First of the beginning: the send. Whoever requeues, restores or proves some of it is waited for, and seen.
SELECT id FROM send WHERE id = %(send_id)s FOR NO KEY UPDATE

-- name: begin_forgetting_send
-- Its batches' counts are written down as its totals for good, what was discarded in a column of its own. From this
-- commit on its books are these totals, whichever of its batches are still there: they balance at every moment. The
-- send is locked. Guards: it is still finished (a person may have requeued something), and nothing is unsure but what
-- was discarded.
UPDATE send s
SET forgotten_at = now(), settled_counts = coalesce(books.counts, s.settled_counts)
FROM (SELECT %(send_id)s::uuid AS id) AS this
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(per.channel, per.counts) AS counts, coalesce(sum(per.unsure), 0) AS unsure
    FROM (
        SELECT b.channel, b.unsure - f.unsure AS unsure, jsonb_build_object(
            'sent', b.sent, 'failed', b.failed - f.failed, 'dead_lettered', b.dead_lettered - f.dead_lettered,
            'unsure', b.unsure - f.unsure, 'suppressed', b.suppressed, 'cancelled', b.cancelled,
            'expired', b.expired, 'discarded', f.failed + f.dead_lettered + f.unsure) AS counts
        FROM (
            SELECT channel, sum(sent) AS sent, sum(failed) AS failed, sum(dead_lettered) AS dead_lettered,
                   sum(unsure) AS unsure, sum(suppressed) AS suppressed, sum(cancelled) AS cancelled,
                   sum(expired) AS expired
            FROM batch WHERE batch.send_id = this.id GROUP BY channel
        ) AS b
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE status = 'failed') AS failed,
                   count(*) FILTER (WHERE status = 'dead_lettered') AS dead_lettered,
                   count(*) FILTER (WHERE status = 'unsure') AS unsure
            FROM failure WHERE failure.send_id = this.id AND failure.channel = b.channel AND discarded_at IS NOT NULL
        ) AS f
    ) AS per
) AS books
WHERE s.id = this.id AND s.status IN ('completed', 'cancelled') AND s.settled_counts IS NOT NULL
  AND s.forgotten_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = this.id AND b.settled_at IS NULL)
  AND books.unsure <= 0
RETURNING s.id

-- name: remove_batches
-- Some of its batches, which nobody works on any more and nobody counts; with none, no number is returned.
-- Guard: it is being forgotten, and its totals are written down.
WITH gone AS (
    DELETE FROM batch
    WHERE send_id = %(send_id)s AND batch_no = ANY (ARRAY(
        SELECT batch_no FROM batch WHERE send_id = %(send_id)s AND batch_no > %(after)s
        ORDER BY batch_no LIMIT %(limit)s))
      AND EXISTS (SELECT 1 FROM send
                  WHERE id = %(send_id)s AND forgotten_at IS NOT NULL AND settled_counts IS NOT NULL)
    RETURNING batch_no
)
SELECT count(*)::int, max(batch_no) FROM gone

-- name: first_delivery_row
-- Where its deliveries begin; no row when all are gone.
SELECT row_no FROM delivery WHERE send_id = %(send_id)s AND row_no > %(after)s ORDER BY row_no LIMIT 1

-- name: remove_deliveries
-- A range of deliveries of a send whose batches are gone, with all that hangs on each of them.
-- Guard: it is being forgotten, and its totals are written down.
WITH this AS (
    SELECT id FROM send WHERE id = %(send_id)s AND forgotten_at IS NOT NULL AND settled_counts IS NOT NULL
), attempts AS (
    DELETE FROM attempt
    WHERE send_id = %(send_id)s AND row_no BETWEEN %(first)s AND %(last)s AND EXISTS (SELECT 1 FROM this)
    RETURNING 1
), receipts AS (
    DELETE FROM receipt
    WHERE send_id = %(send_id)s AND row_no BETWEEN %(first)s AND %(last)s AND EXISTS (SELECT 1 FROM this)
    RETURNING 1
), deliveries AS (
    DELETE FROM delivery
    WHERE send_id = %(send_id)s AND row_no BETWEEN %(first)s AND %(last)s AND EXISTS (SELECT 1 FROM this)
    RETURNING 1
)
SELECT (SELECT count(*) FROM deliveries)::int, (SELECT count(*) FROM attempts)::int, (SELECT count(*) FROM receipts)::int

-- name: end_forgetting_send
-- Nothing of it is left but itself, without its params and its texts; the subject's template stays, for people.
UPDATE send
SET emptied_at = now(), params = '{}',
    content = (SELECT coalesce(jsonb_object_agg(c.key, c.value - 'text' - 'html'), '{}') FROM jsonb_each(content) AS c)
WHERE id = %(send_id)s AND forgotten_at IS NOT NULL AND settled_counts IS NOT NULL

-- name: notification_channels
-- Whose notifications are kept for how long.
SELECT id, coalesce(retention_days, %(days)s) FROM digest_channel ORDER BY id

-- name: remove_notifications
-- Looks at a page of those that became final long ago and removes all but those that an active finding is behind: its
-- row is the memory that it was told, also of another one of its dedup key. Never what is still to be told. A page full
-- of what stays hides nothing: the next begins after it. What somebody is at just now (a requeue of dead letters, which
-- goes by another order) is not waited for and stays until tomorrow: two who wait for each other would end in a deadlock.
WITH page AS (
    SELECT n.id, n.final_at, n.finding_key, c.tenant_id
    FROM notification n JOIN digest_channel c ON c.id = n.channel_id
    WHERE n.channel_id = %(channel_id)s AND n.final_at < now() - %(days)s * interval '1 day'
      AND (n.final_at, n.id) > (%(after)s::timestamptz, %(after_id)s)
    ORDER BY n.final_at, n.id LIMIT %(limit)s
), free AS (
    SELECT n.id FROM notification n JOIN page ON page.id = n.id FOR UPDATE OF n SKIP LOCKED
), gone AS (
    DELETE FROM notification n USING page
    WHERE n.id = page.id AND n.id = ANY (ARRAY(SELECT id FROM free)) AND n.status IN ('sent', 'suppressed', 'dead_lettered') AND n.final_at = page.final_at
      AND NOT EXISTS (
          SELECT 1 FROM finding f WHERE f.tenant_id = page.tenant_id AND f.key = page.finding_key AND f.active
      )
      AND NOT EXISTS (
          SELECT 1 FROM finding f WHERE f.tenant_id = page.tenant_id AND f.dedup_key = n.dedup_key AND f.active
      )
    RETURNING 1
)
SELECT (SELECT count(*) FROM page)::int, (SELECT count(*) FROM gone)::int,
       (SELECT final_at FROM page ORDER BY final_at DESC, id DESC LIMIT 1),
       (SELECT id FROM page ORDER BY final_at DESC, id DESC LIMIT 1)

-- name: remove_events
-- Events received long ago; what was told of them is kept for its own time. One that names a finding stays as long as it
-- may still be told: without it nobody could say whether that is over. One that is handed in again just now is not
-- waited for (see remove_notifications).
DELETE FROM event WHERE id = ANY (ARRAY(
    SELECT e.id FROM event e
    WHERE e.received_at < now() - %(days)s * interval '1 day'
      AND (e.finding_key IS NULL OR NOT EXISTS (
          SELECT 1 FROM digest_channel c
          JOIN notification n ON n.channel_id = c.id AND n.dedup_key = e.dedup_key
          WHERE c.tenant_id = e.tenant_id AND n.status IN ('pending', 'retrying', 'dead_lettered')
      ))
    ORDER BY e.received_at LIMIT %(limit)s
    FOR UPDATE OF e SKIP LOCKED
))

-- name: remove_findings
-- Findings that have not been so for long. One that is put again just now is not waited for (see remove_notifications).
-- Rows are found by place: it is theirs as long as they are locked.
DELETE FROM finding WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM finding
    WHERE inactive_at < now() - %(days)s * interval '1 day' ORDER BY inactive_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)) AND NOT active

-- name: remove_digests
-- Messages that ended long ago.
DELETE FROM digest WHERE id = ANY (
    SELECT id FROM digest WHERE ended_at < now() - %(days)s * interval '1 day' ORDER BY ended_at LIMIT %(limit)s
)

-- name: remove_digest_runs
-- Runs and tests of long ago.
DELETE FROM digest_run WHERE id = ANY (
    SELECT id FROM digest_run WHERE asked_at < now() - %(days)s * interval '1 day' ORDER BY asked_at LIMIT %(limit)s
)

-- name: remove_recovery_passes
-- Passes of the reconciler of long ago.
DELETE FROM recovery_pass WHERE id = ANY (
    SELECT id FROM recovery_pass WHERE started_at < now() - %(days)s * interval '1 day' ORDER BY started_at LIMIT %(limit)s
)

-- name: remove_lost_receipts
-- Receipts for messages that nobody here knows, or that are no longer kept.
DELETE FROM receipt WHERE id = ANY (
    SELECT id FROM receipt
    WHERE applied_at IS NULL AND received_at < now() - %(days)s * interval '1 day' ORDER BY id LIMIT %(limit)s
)
