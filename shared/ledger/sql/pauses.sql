-- name: select_queue_pauses
-- Paused queues, with who, why and since when. Read every 2 s by each worker process, by due work and by the pages.
SELECT queue, operator, reason, paused_at FROM queue_pause ORDER BY queue

-- name: pause_queue
-- An operator pauses a queue. No row: it was paused already, and stays the first operator's.
INSERT INTO queue_pause (queue, operator, reason) VALUES (%(queue)s, %(operator)s, %(reason)s)
ON CONFLICT (queue) DO NOTHING
RETURNING queue

-- name: resume_queue
-- An operator ends a pause. No row: there was none.
DELETE FROM queue_pause WHERE queue = %(queue)s RETURNING queue
