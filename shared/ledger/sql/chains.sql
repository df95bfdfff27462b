-- name: load_send
-- What a worker needs of a send to render and address its messages.
SELECT s.id, s.tenant_id, s.mode, s.lane, s.content, s.params, s.accepted, s.created_at,
       greatest(s.created_at, s.send_at, s.resumed_at) AS owed_since, t.email_from, t.sms_from
FROM send s JOIN tenant t ON t.id = s.tenant_id
WHERE s.id = %(send_id)s

-- name: start_send
-- Ingest: an accepted send becomes scheduled or sending. Running it again changes nothing.
UPDATE send
SET status = CASE WHEN send_at > now() THEN 'scheduled' ELSE 'sending' END,
    queued_at = coalesce(queued_at, now()),
    started_at = CASE WHEN send_at > now() THEN NULL ELSE now() END
WHERE id = %(send_id)s AND status IN ('pending', 'queued')
RETURNING status

-- name: start_scheduled_sends
-- Due work: every scheduled send whose time has come.
UPDATE send
SET status = 'sending', started_at = now()
WHERE status = 'scheduled' AND send_at <= now()
RETURNING id

-- name: put_chain
-- A chain's message is about to be enqueued under `token`. Guard: nobody replaced `old_token` meanwhile.
INSERT INTO chain (send_id, channel, chain_no, token)
VALUES (%(send_id)s, %(channel)s, %(chain_no)s, %(token)s)
ON CONFLICT (send_id, channel, chain_no) DO UPDATE
SET token = excluded.token, holder = NULL, started_at = NULL, queued_at = now()
WHERE chain.token = %(old_token)s::uuid
RETURNING token

-- name: begin_chain
-- A worker takes up a chain's message. Guards: the token is current, and no live process works on it.
UPDATE chain c
SET holder = %(worker)s, started_at = now()
WHERE c.send_id = %(send_id)s AND c.channel = %(channel)s AND c.chain_no = %(chain_no)s AND c.token = %(token)s
  AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = c.holder AND w.lease_until > now())
RETURNING c.chain_no

-- name: hand_over_chain
-- The chain's time is up and work remains: its successor is about to be enqueued under `new_token`.
UPDATE chain
SET token = %(new_token)s, holder = NULL, started_at = NULL, queued_at = now()
WHERE send_id = %(send_id)s AND channel = %(channel)s AND chain_no = %(chain_no)s
  AND token = %(token)s AND holder = %(worker)s
RETURNING token

-- name: keep_chain
-- A successor could not be enqueued: the chain goes on in this process, from the ledger alone.
UPDATE chain
SET holder = %(worker)s, started_at = now()
WHERE send_id = %(send_id)s AND channel = %(channel)s AND chain_no = %(chain_no)s
  AND token = %(token)s AND holder IS NULL
RETURNING chain_no

-- name: end_chain
-- Nothing is due for this chain; the due-work actor starts another when something is.
DELETE FROM chain
WHERE send_id = %(send_id)s AND channel = %(channel)s AND chain_no = %(chain_no)s AND token = %(token)s

-- name: forget_chains
-- Housekeeping: chains of sends that are over, whose message was lost while others did the work. A late message finds
-- none, and ends; whoever requeues has new ones started.
DELETE FROM chain c
USING send s
WHERE s.id = c.send_id AND s.status IN ('completed', 'cancelled') AND c.queued_at < now() - interval '1 hour'
  AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = c.holder AND w.lease_until > now())

-- name: find_due_sends
-- Due work: sends that may be worked on now and have a free due batch, keyset-paged by id and channel.
-- due_batches is counted up to `most` only: it decides how many chains are worth starting.
SELECT s.id, s.lane, s.mode, c.channel, due.batches
FROM send s
CROSS JOIN (VALUES ('email'), ('sms')) AS c (channel)
CROSS JOIN LATERAL (
    SELECT count(*) AS batches
    FROM (
        SELECT 1 FROM batch b
        WHERE b.send_id = s.id AND b.channel = c.channel AND b.holder IS NULL AND b.due_at <= now()
        LIMIT %(most)s
    ) AS counted
) AS due
WHERE s.status = 'sending' AND s.id >= %(after)s AND due.batches > 0
  AND (s.id, c.channel) > (%(after)s, %(after_channel)s)
ORDER BY s.id, c.channel LIMIT %(limit)s

-- name: find_chains
-- The chains of some sends, with whether their holder lives and how long they have been queued (seconds).
SELECT c.send_id, c.channel, c.chain_no, c.token, c.holder IS NOT NULL AS running,
       EXISTS (SELECT 1 FROM worker w WHERE w.id = c.holder AND w.lease_until > now()) AS holder_lives,
       extract(epoch FROM now() - c.queued_at)::float8 AS queued_s
FROM chain c
WHERE c.send_id = ANY (%(send_ids)s)

-- name: complete_send
-- A send with nothing owed, retrying or in a call is finished. Guards: no batch is open, and nobody changed the send
-- (a late result does) since that was seen.
UPDATE send s
SET status = 'completed', completed_at = now(), settled_counts = books.counts
FROM (SELECT id, ctid AS place FROM send WHERE id = %(send_id)s) AS this
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(per.channel, per.counts) AS counts
    FROM (
        SELECT b.channel, jsonb_build_object(
            'sent', sum(b.sent), 'failed', sum(b.failed), 'dead_lettered', sum(b.dead_lettered),
            'unsure', sum(b.unsure), 'suppressed', sum(b.suppressed), 'cancelled', sum(b.cancelled),
            'expired', sum(b.expired)) AS counts
        FROM batch b WHERE b.send_id = this.id GROUP BY b.channel
    ) AS per
) AS books
WHERE s.id = this.id AND s.ctid = this.place AND s.status = 'sending'
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = this.id AND b.settled_at IS NULL)
RETURNING s.id

-- name: find_finished_sends
-- Due work: sends in progress with no open batch.
SELECT s.id FROM send s
WHERE s.status = 'sending' AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = s.id AND b.settled_at IS NULL)
ORDER BY s.id LIMIT %(limit)s

-- name: pause_send
-- The machine pauses a send that cannot go on as it is (its sender is refused).
UPDATE send
SET status = 'paused', paused_at = now(), pause_reason = %(reason)s, paused_by = NULL
WHERE id = %(send_id)s AND status = 'sending'
RETURNING id

-- name: pause_poisoned_send
-- The poison guard: the same message fault `most` times since the send was last resumed. The signature's index has the
-- faults of every send by time: the send's own time bounds what is read of it.
UPDATE send s
SET status = 'paused', paused_at = now(), pause_reason = %(reason)s, paused_by = NULL
WHERE s.id = %(send_id)s AND s.status = 'sending'
  AND (SELECT count(*) FROM (
        SELECT 1 FROM attempt a
        WHERE a.signature = %(signature)s AND a.send_id = s.id
          AND a.ended_at > greatest(s.created_at, s.resumed_at)
        LIMIT %(most)s) AS same) >= %(most)s
RETURNING s.id
