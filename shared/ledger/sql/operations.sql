-- name: insert_operation
-- A person asks for a bulk operation. The id stands for who asked for what, so a double click makes one operation.
INSERT INTO operation (id, kind, status, operator, reason, filter, accepts_duplicates, canary, as_of, run_at, total)
VALUES (%(id)s, %(kind)s, 'scheduled', %(operator)s, %(reason)s, %(filter)s, %(accepts_duplicates)s, %(canary)s,
        %(as_of)s, now() + %(undo_s)s * interval '1 second', 0)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: set_operation_total
-- Its set is frozen, in the same transaction; a small one is not tried on a few first.
UPDATE operation SET total = %(total)s, canary = canary AND %(canary)s WHERE id = %(id)s

-- name: find_operations_due
-- Due work: whether an operation should be moving and nobody moves it: a worker at it never leaves it a second late.
SELECT 1 FROM operation
WHERE status IN ('scheduled', 'running') AND run_at <= now()
  AND (status = 'scheduled' OR run_at <= now() - %(late_s)s * interval '1 second')
LIMIT 1

-- name: next_operation_in
-- Seconds until the next operation may go on; no row when none is open.
SELECT greatest(extract(epoch FROM run_at - now()), 0)::float8 FROM operation
WHERE status IN ('scheduled', 'running')
ORDER BY run_at LIMIT 1

-- name: take_operation
-- A worker takes the next operation for one chunk. Guard: due, and no other worker is at it; a person who stops or
-- undoes it waits for this transaction, or this one passes it over.
SELECT id, kind, operator, accepts_duplicates, canary, done, skipped, total, filter ->> 'words',
       coalesce(extract(epoch FROM now() - stage_at), 0)::float8, coalesce(filter ->> 'target', 'deliveries'),
       filter ->> 'ids' IS NOT NULL
FROM operation
WHERE status IN ('scheduled', 'running') AND run_at <= now()
ORDER BY run_at LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED

-- name: next_operation_items
-- The next of its items that nobody has worked on.
SELECT send_id, row_no, epoch FROM operation_item
WHERE operation_id = %(id)s AND result IS NULL
ORDER BY send_id, row_no LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: next_operation_items_to_try
-- Likewise of the few that go first: those that were requeued least often, since what failed again says little of others.
SELECT send_id, row_no, epoch FROM operation_item
WHERE operation_id = %(id)s AND result IS NULL
ORDER BY epoch, send_id, row_no LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: note_operation_progress
-- A chunk is done. `run_at` paces it, over all workers: the next chunk may go then.
UPDATE operation
SET status = 'running', started_at = coalesce(started_at, now()), done = done + %(done)s, skipped = skipped + %(skipped)s,
    stage_at = now(), run_at = clock_timestamp() + %(pause_s)s * interval '1 second'
WHERE id = %(id)s AND status IN ('scheduled', 'running')

-- name: put_off_operation
-- It waits for what becomes of its first ones.
UPDATE operation SET run_at = clock_timestamp() + %(pause_s)s * interval '1 second'
WHERE id = %(id)s AND status = 'running'

-- name: end_operation
-- Nothing of its set is left.
UPDATE operation SET status = 'done', started_at = coalesce(started_at, now()), ended_at = now()
WHERE id = %(id)s AND status IN ('scheduled', 'running')
  AND NOT EXISTS (SELECT 1 FROM operation_item WHERE operation_id = %(id)s AND result IS NULL)
  AND NOT EXISTS (SELECT 1 FROM operation_notification WHERE operation_id = %(id)s AND result IS NULL)
RETURNING id

-- name: stop_operation
-- A person, or the failure of its first ones, stops it: the rest stays as it was.
UPDATE operation SET status = 'stopped', ended_at = now(), why = %(why)s
WHERE id = %(id)s AND status IN ('scheduled', 'running')
RETURNING id

-- name: undo_operation
-- A person takes it back before anything was done.
UPDATE operation SET status = 'undone', ended_at = now(), why = %(why)s
WHERE id = %(id)s AND status = 'scheduled'
RETURNING id

-- name: judge_canary
-- What became of the first ones: each by its first attempt in the new epoch, or by a settled state without one.
-- The same failure: with the signature of the last attempt of the epoch before. Others: failed for good, with another.
SELECT count(*)::int, count(*) FILTER (WHERE now.outcome IS NOT NULL OR d.settled_at IS NOT NULL OR d.epoch > i.epoch + 1)::int,
       count(*) FILTER (WHERE now.signature = before.signature)::int,
       count(*) FILTER (WHERE now.became = 'failed' AND now.signature IS DISTINCT FROM before.signature)::int
FROM operation_item i
JOIN delivery d ON d.send_id = i.send_id AND d.row_no = i.row_no
LEFT JOIN LATERAL (
    SELECT a.outcome, a.signature, a.became FROM attempt a
    WHERE a.send_id = i.send_id AND a.row_no = i.row_no AND a.epoch = i.epoch + 1
    ORDER BY a.ended_at LIMIT 1
) AS now ON true
LEFT JOIN LATERAL (
    SELECT a.signature FROM attempt a
    WHERE a.send_id = i.send_id AND a.row_no = i.row_no AND a.epoch = i.epoch AND a.signature IS NOT NULL
    ORDER BY a.ended_at DESC LIMIT 1
) AS before ON true
WHERE i.operation_id = %(id)s AND i.result = 'done'

-- name: select_operation
-- One operation.
SELECT id, kind, status, operator, reason, filter, accepts_duplicates, canary, as_of, run_at, total, done, skipped,
       created_at, started_at, ended_at, why, emptied_at, now()
FROM operation WHERE id = %(id)s

-- name: select_operations
-- Operations, newest first; with a cursor those before that one.
SELECT id, kind, status, operator, reason, filter, accepts_duplicates, canary, as_of, run_at, total, done, skipped,
       created_at, started_at, ended_at, why, emptied_at, now()
FROM operation
WHERE %(before)s::uuid IS NULL
   OR (created_at, id) < (SELECT last.created_at, last.id FROM operation AS last WHERE last.id = %(before)s)
ORDER BY created_at DESC, id DESC LIMIT %(limit)s

-- name: operation_skips
-- Why items of an operation were skipped.
SELECT coalesce(why, 'state'), count(*)::int
FROM (
    SELECT why FROM operation_item WHERE operation_id = %(id)s AND result = 'skipped'
    UNION ALL
    SELECT why FROM operation_notification WHERE operation_id = %(id)s AND result = 'skipped'
) AS skipped
GROUP BY 1 ORDER BY 2 DESC, 1

-- name: operation_outcome
-- What became of what it was done to, as of now; `requeued again` where a person did it once more since.
SELECT CASE WHEN d.send_id IS NULL THEN 'removed'
            WHEN d.epoch > i.epoch + (o.kind = 'requeue')::int THEN 'requeued again'
            WHEN f.discarded_at IS NOT NULL THEN 'discarded'
            WHEN d.status = 'unsure' AND d.prove_at IS NOT NULL THEN 'being proved'
            ELSE d.status END, count(*)::int
FROM operation o
JOIN operation_item i ON i.operation_id = o.id AND i.result = 'done'
LEFT JOIN delivery d ON d.send_id = i.send_id AND d.row_no = i.row_no
LEFT JOIN failure f ON f.send_id = i.send_id AND f.row_no = i.row_no
WHERE o.id = %(id)s
GROUP BY 1 ORDER BY 2 DESC, 1

-- name: count_sent_of_requeues
-- How many of what requeues took are sent since, for the rows of groups: as it was written down, or counted now where
-- that is not too many looks for all of them, the newest first.
SELECT id, CASE WHEN NOT is_noted AND total <= %(large)s AND items <= %(most)s THEN (
               SELECT count(*)::int FROM operation_item i
               CROSS JOIN LATERAL (
                   SELECT 1 FROM delivery
                   WHERE delivery.send_id = i.send_id AND delivery.row_no = i.row_no
                     AND delivery.status = 'sent' AND delivery.epoch = i.epoch + 1
                   OFFSET 0
               ) AS d
               WHERE i.operation_id = o.id AND i.result = 'done')
           WHEN outcome <> '{}' THEN coalesce((outcome ->> 'sent')::int, 0) END
FROM (
    SELECT id, total, coalesce(result ? 'at', false) AS is_noted,
           coalesce(result -> 'meanwhile', result) -> 'outcome' AS outcome,
           sum(total) FILTER (WHERE total <= %(large)s) OVER (ORDER BY created_at DESC, id) AS items
    FROM operation WHERE id = ANY (%(ids)s::uuid[])
) AS o

-- name: notification_operation_outcome
-- Likewise of notifications.
SELECT CASE WHEN n.id IS NULL THEN 'removed' WHEN n.discarded_at IS NOT NULL THEN 'discarded' ELSE n.status END,
       count(*)::int
FROM operation_notification i
LEFT JOIN notification n ON n.id = i.notification_id
WHERE i.operation_id = %(id)s AND i.result = 'done'
GROUP BY 1 ORDER BY 2 DESC, 1

-- name: select_operation_result
-- What was written down of an operation that is over, for good; no row where nothing was.
SELECT result FROM operation WHERE id = %(id)s AND result ? 'at'

-- name: select_operation_count
-- What was counted of it last; no row where nothing was.
SELECT coalesce(result -> 'meanwhile', result) FROM operation WHERE id = %(id)s AND result IS NOT NULL

-- name: find_operations_to_count
-- Due work: large operations of the last day whose result is counted meanwhile, since no page does it: at their end, and
-- again each time they have been over for twice as long as they were at the count before.
SELECT id FROM operation
WHERE done > %(large)s AND ended_at >= now() - interval '1 day' AND NOT coalesce(result ? 'at', false)
  AND (result IS NULL
       OR now() - ended_at >= greatest(2 * ((result -> 'meanwhile' ->> 'at')::timestamptz - ended_at), interval '1 minute'))
ORDER BY ended_at, id LIMIT %(limit)s

-- name: note_operation_count
-- What came of it so far, until its result is written down for good. Guard: it is over, and that was not done.
UPDATE operation
SET result = jsonb_build_object('meanwhile', jsonb_build_object('at', now(), 'outcome', %(outcome)s::jsonb))
WHERE id = %(id)s AND ended_at IS NOT NULL AND NOT coalesce(result ? 'at', false)

-- name: find_operations_to_note
-- Operations that ended a day ago, when nearly all of what they took is settled, without a result that is written down;
-- in another order each run, so that one that cannot be counted is not always before the others.
SELECT id FROM operation
WHERE ended_at < now() - interval '1 day' AND NOT coalesce(result ? 'at', false)
ORDER BY md5(id::text || %(run)s::text) LIMIT %(limit)s

-- name: note_operation_result
-- What came of it is written down. Guard: it is over, and this is the first time.
UPDATE operation SET result = %(result)s
WHERE id = %(id)s AND ended_at IS NOT NULL AND NOT coalesce(result ? 'at', false)

-- name: find_operations_to_empty
-- Operations whose items may go: ended long ago, with a result that is written down; in another order each run.
SELECT id FROM operation
WHERE ended_at < now() - %(days)s * interval '1 day' AND result ? 'at' AND emptied_at IS NULL
ORDER BY md5(id::text || %(run)s::text) LIMIT %(limit)s

-- name: operation_is_kept
-- Whether a delivery or notification of one of its items is kept: its page shows the operation in its history. Found by
-- key, whatever the planner believes.
SELECT EXISTS (
    SELECT 1 FROM operation_item i
    CROSS JOIN LATERAL (
        SELECT 1 FROM delivery WHERE delivery.send_id = i.send_id AND delivery.row_no = i.row_no OFFSET 0
    ) AS d
    WHERE i.operation_id = %(id)s
) OR EXISTS (
    SELECT 1 FROM operation_notification i
    CROSS JOIN LATERAL (SELECT 1 FROM notification WHERE notification.id = i.notification_id OFFSET 0) AS n
    WHERE i.operation_id = %(id)s
)

-- name: remove_operation_items
-- Some of its items. Guard: its result is written down.
WITH this AS (
    SELECT id FROM operation WHERE id = %(id)s AND ended_at IS NOT NULL AND result ? 'at'
), items AS (
    DELETE FROM operation_item WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM operation_item i JOIN this ON this.id = i.operation_id LIMIT %(limit)s))
    RETURNING 1
), notifications AS (
    DELETE FROM operation_notification WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM operation_notification i JOIN this ON this.id = i.operation_id LIMIT %(limit)s))
    RETURNING 1
)
SELECT ((SELECT count(*) FROM items) + (SELECT count(*) FROM notifications))::int

-- name: end_emptying_operation
-- None of its items is left.
UPDATE operation SET emptied_at = now() WHERE id = %(id)s AND result ? 'at'
