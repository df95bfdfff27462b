-- name: ask_digest_run
-- A person asks for a dispatch now, or for a test of a channel; a worker takes it up.
INSERT INTO digest_run (id, channel_id, asked_by) VALUES (%(id)s, %(channel_id)s, %(asked_by)s)

-- name: begin_digest_run
-- A worker takes up what a person asked for. Guard: nobody has, and it was not given up. The channel to be tested is
-- returned.
UPDATE digest_run SET started_at = now(), worker = %(worker)s
WHERE id = %(id)s AND started_at IS NULL AND ended_at IS NULL
RETURNING channel_id

-- name: give_up_digest_run
-- No worker could be told of it. Guard: none has taken it up, as one may where only Redis's answer was lost.
UPDATE digest_run SET ended_at = now(), result = %(result)s
WHERE id = %(id)s AND started_at IS NULL AND ended_at IS NULL

-- name: begin_periodic_digest_run
-- The clock's run.
INSERT INTO digest_run (id, asked_by, started_at, worker) VALUES (%(id)s, 'clock', now(), %(worker)s)

-- name: end_digest_run
-- It is over; `result` is what people are shown.
UPDATE digest_run SET ended_at = now(), result = %(result)s WHERE id = %(id)s AND ended_at IS NULL

-- name: select_digest_run
-- How far one is, and the channel that it tests.
SELECT r.id, r.asked_by, r.asked_at, r.started_at, r.ended_at, r.worker, r.result,
       coalesce(extract(epoch FROM now() - r.started_at), 0)::float8, c.name
FROM digest_run r LEFT JOIN digest_channel c ON c.id = r.channel_id
WHERE r.id = %(id)s

-- name: select_last_digest_run
-- The last dispatch that came to its end.
SELECT id, asked_by, asked_at, started_at, ended_at, worker, result,
       coalesce(extract(epoch FROM now() - started_at), 0)::float8, NULL
FROM digest_run WHERE channel_id IS NULL AND started_at IS NOT NULL AND ended_at IS NOT NULL
ORDER BY asked_at DESC LIMIT 1
