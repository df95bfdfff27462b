-- name: lease_batches
-- A chain takes the next due batches of its send. Guards: free and due; SKIP LOCKED on the small table only; the chain
-- is still the one of this message, where `token` says which.
WITH due AS (
    SELECT batch_no FROM batch
    WHERE send_id = %(send_id)s AND channel = %(channel)s AND holder IS NULL AND due_at <= now()
      AND (%(token)s::uuid IS NULL OR EXISTS (
          SELECT 1 FROM chain c
          WHERE c.send_id = %(send_id)s AND c.channel = %(channel)s AND c.chain_no = %(chain_no)s AND c.token = %(token)s))
    ORDER BY due_at, batch_no
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE batch b
SET holder = %(worker)s, chain_no = %(chain_no)s, leased_at = now(), progress_at = now()
FROM due
WHERE b.send_id = %(send_id)s AND b.batch_no = due.batch_no
RETURNING b.batch_no, b.owed + b.retrying AS waiting

-- name: release_batches
-- A chain gives batches back: due again when their earliest row is, settled when nothing is open.
-- `batches` empty: all it holds, known to it or not (the answer to a lease may have been lost).
-- Guards: still held by this chain of this process, and not by its successor in the same process (`token`). A row still `sending` has lost its outcome (a claim's commit that
-- was not heard of, a group's record that a crash of the server undid): its batch passes to a holder that never lives,
-- so that it is found as a dead worker's is.
WITH held AS (
    SELECT batch_no, first_row, last_row, owed + retrying AS waiting FROM batch
    WHERE send_id = %(send_id)s AND holder = %(worker)s AND channel = %(channel)s AND chain_no = %(chain_no)s
      AND (%(batches)s::int[] IS NULL OR batch_no = ANY (%(batches)s))
      AND NOT EXISTS (
          SELECT 1 FROM chain c
          WHERE c.send_id = %(send_id)s AND c.channel = %(channel)s AND c.chain_no = %(chain_no)s
            AND c.token <> %(token)s::uuid)
    ORDER BY batch_no
    FOR UPDATE
), due AS (
    SELECT h.batch_no, min(coalesce(d.next_attempt_at, now())) AS at
    FROM held h
    CROSS JOIN LATERAL (
        SELECT next_attempt_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN h.first_row AND h.last_row AND status IN ('owed', 'retrying')
        OFFSET 0
    ) AS d
    WHERE h.waiting > 0
    GROUP BY h.batch_no
)
UPDATE batch b
SET holder = CASE WHEN b.sending > 0 THEN '00000000-0000-0000-0000-000000000000'::uuid END,
    chain_no = CASE WHEN b.sending > 0 THEN b.chain_no END,
    leased_at = CASE WHEN b.sending > 0 THEN b.leased_at END,
    -- A row that came back while this waited for the batch is counted, but unseen by `due`: look again at once.
    due_at = CASE WHEN b.owed + b.retrying > 0 THEN coalesce(due.at, now()) END,
    settled_at = CASE WHEN b.owed + b.sending + b.retrying + b.proving = 0 THEN now() END
FROM held LEFT JOIN due USING (batch_no)
WHERE b.send_id = %(send_id)s AND b.batch_no = held.batch_no

-- name: set_batches_aside
-- A fault of ours ended a chain: what it held and still owes stays held by this process and by no chain of it, so that
-- nobody meets the fault again before the reconciler frees the batch for want of progress.
UPDATE batch SET chain_no = -1
WHERE send_id = %(send_id)s AND holder = %(worker)s AND channel = %(channel)s AND chain_no = %(chain_no)s
  AND owed + retrying > 0

-- name: lock_batches
-- A process whose lease ran out is about to record: it waits its turn at the batches, as whoever frees them does.
-- While a lease holds, nobody else touches them and no lock is needed.
SELECT batch_no FROM batch
WHERE send_id = %(send_id)s AND batch_no = ANY (%(batches)s)
ORDER BY batch_no
FOR UPDATE

-- name: find_abandoned_batches
-- Due work: batches whose holder is dead, oldest lease first.
SELECT b.send_id, b.batch_no, b.holder, s.lane
FROM batch b JOIN send s ON s.id = b.send_id
WHERE b.holder IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = b.holder AND w.lease_until > now())
ORDER BY b.leased_at LIMIT %(limit)s

-- name: free_abandoned_batch
-- A dead holder's batch: its calls in flight become `unsure` with the evidence, the rest is due again at once. This is
-- one recovery; `recovery_count` starts anew with any progress.
-- `code` and `detail` say what became of the holder. `providers` and `first_look_s` say when a look at what a provider knows is worth it; one of no list is parked.
-- Guards: the same holder, and it is still dead. Rows keep their claim id, so that late proof can be told apart.
WITH held AS (
    SELECT b.batch_no, b.first_row, b.last_row FROM batch b
    WHERE b.send_id = %(send_id)s AND b.batch_no = %(batch_no)s AND b.holder = %(worker)s
      AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = b.holder AND w.lease_until > now())
    FOR UPDATE
), rows AS (
    SELECT d.* FROM held h CROSS JOIN LATERAL (
        SELECT ctid AS place, status, next_attempt_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN h.first_row AND h.last_row
          AND status IN ('owed', 'retrying', 'sending')
        OFFSET 0
    ) AS d
), parked AS (
    UPDATE delivery d
    SET status = 'unsure', attempt_count = d.attempt_count + 1, prove_count = 0,
        prove_at = now() + (%(first_look_s)s::float8[])[array_position(%(providers)s::text[], d.provider)]
                   * interval '1 second',
        settled_at = CASE WHEN array_position(%(providers)s::text[], d.provider) IS NULL THEN now() END,
        last_error = %(detail)s
    FROM rows r
    WHERE d.ctid = r.place AND r.status = 'sending' AND d.status = 'sending'
    RETURNING d.row_no, d.claim_id, d.epoch, d.attempt_count, d.channel, d.provider, d.last_attempt_at, d.prove_at
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         started_at, ended_at, evidence)
    SELECT %(send_id)s, p.row_no, p.claim_id, p.epoch, p.attempt_count, p.channel, coalesce(p.provider, 'unknown'),
           'ambiguous', 'unsure',
           %(code)s, %(detail)s, p.last_attempt_at, now(),
           jsonb_build_object('worker', %(worker)s::text)
    FROM parked p
    ON CONFLICT DO NOTHING
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, calls, unsure)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, p.channel, coalesce(p.provider, 'unknown'), 0,
           count(*), count(*)
    FROM parked p
    JOIN send s ON s.id = %(send_id)s
    GROUP BY 3, 4, 5
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET calls = m.calls + excluded.calls, unsure = m.unsure + excluded.unsure
), due AS (
    SELECT min(coalesce(next_attempt_at, now())) AS at FROM rows WHERE status IN ('owed', 'retrying')
), counted AS (
    SELECT count(*)::int AS parked, count(prove_at)::int AS proving, min(prove_at) AS prove_at FROM parked
)
UPDATE batch b
SET holder = NULL, chain_no = NULL, leased_at = NULL,
    -- What was recorded while this waited for the batch is counted, but unseen by `due`: look again at once.
    due_at = CASE WHEN b.owed + b.retrying > 0 THEN coalesce(due.at, now()) END,
    sending = b.sending - counted.parked, unsure = b.unsure + counted.parked,
    proving = b.proving + counted.proving, prove_at = least(b.prove_at, counted.prove_at),
    recovery_count = least(b.recovery_count + 1, 1000),
    settled_at = CASE WHEN b.owed + b.retrying + b.proving + counted.proving = 0 AND b.sending = counted.parked
                      THEN now() END
FROM held, due, counted
WHERE b.send_id = %(send_id)s AND b.batch_no = held.batch_no
RETURNING counted.parked

-- name: sweep_batches
-- What a cancelled or expired send still owes becomes `cancelled` or `expired`, a bounded number of batches at
-- a time. Guard: free batches only; a chain that holds one finds the send stopped and lets go.
WITH open AS (
    SELECT batch_no, channel, first_row, last_row FROM batch
    WHERE send_id = %(send_id)s AND settled_at IS NULL AND holder IS NULL AND owed + retrying > 0
    ORDER BY batch_no LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), rows AS (
    SELECT d.place, d.status, o.batch_no, o.channel FROM open o CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN o.first_row AND o.last_row AND status IN ('owed', 'retrying')
        OFFSET 0
    ) AS d
), swept AS (
    UPDATE delivery d
    SET status = %(status)s, settled_at = now(), next_attempt_at = NULL
    FROM rows r
    WHERE d.ctid = r.place AND d.status IN ('owed', 'retrying')
    RETURNING r.batch_no, r.channel, r.status
), counted AS (
    SELECT batch_no, channel, count(*)::int AS rows, count(*) FILTER (WHERE status = 'owed')::int AS owed
    FROM swept GROUP BY batch_no, channel
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, cancelled, expired)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, c.channel, '', 0,
           CASE WHEN %(status)s = 'cancelled' THEN sum(c.rows) ELSE 0 END,
           CASE WHEN %(status)s = 'expired' THEN sum(c.rows) ELSE 0 END
    FROM counted c
    JOIN send s ON s.id = %(send_id)s
    GROUP BY 3, 4
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET cancelled = m.cancelled + excluded.cancelled, expired = m.expired + excluded.expired
)
UPDATE batch b
SET cancelled = b.cancelled + CASE WHEN %(status)s = 'cancelled' THEN c.rows ELSE 0 END,
    expired = b.expired + CASE WHEN %(status)s = 'expired' THEN c.rows ELSE 0 END,
    owed = b.owed - c.owed, retrying = b.retrying - (c.rows - c.owed),
    -- A row that came back while this took the batch is counted, but unseen here: the next sweep finds it.
    due_at = CASE WHEN b.owed + b.retrying > c.rows THEN coalesce(b.due_at, now()) END,
    settled_at = CASE WHEN b.owed + b.retrying = c.rows AND b.sending + b.proving = 0 THEN now() END
FROM counted c
WHERE b.send_id = %(send_id)s AND b.batch_no = c.batch_no
RETURNING c.rows

-- name: find_sends_to_sweep
-- Due work: cancelled sends not yet swept, or swept and not yet closed, and sends past their valid_until. One that waits
-- for others (a call in flight, a proof that takes hours) is none, or many of them would take the places of the rest.
SELECT s.id, s.target
FROM (
    SELECT id, CASE WHEN status = 'cancelled' THEN 'cancelled' ELSE 'expired' END AS target
    FROM send
    WHERE (status = 'cancelled' AND settled_counts IS NULL)
       OR (status IN ('pending', 'queued', 'scheduled', 'sending', 'paused') AND valid_until <= now())
) AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS open, count(*) FILTER (WHERE b.holder IS NULL AND b.owed + b.retrying > 0) AS to_sweep
    FROM batch b
    WHERE b.send_id = s.id AND b.settled_at IS NULL
) AS its
WHERE its.to_sweep > 0 OR (s.target = 'cancelled' AND its.open = 0)
ORDER BY s.id LIMIT %(limit)s

-- name: close_cancelled_send
-- A cancelled send is swept: its totals are written down. Guards: no batch is open, and nobody changed the send (a
-- late result does) since that was seen.
UPDATE send s
SET settled_counts = (
    SELECT jsonb_object_agg(per.channel, per.counts)
    FROM (
        SELECT b.channel, jsonb_build_object(
            'sent', sum(b.sent), 'failed', sum(b.failed), 'dead_lettered', sum(b.dead_lettered),
            'unsure', sum(b.unsure), 'suppressed', sum(b.suppressed), 'cancelled', sum(b.cancelled),
            'expired', sum(b.expired)) AS counts
        FROM batch b WHERE b.send_id = %(send_id)s GROUP BY b.channel
    ) AS per)
FROM (SELECT ctid AS place FROM send WHERE id = %(send_id)s) AS this
WHERE s.id = %(send_id)s AND s.ctid = this.place AND s.status = 'cancelled'
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = %(send_id)s AND b.settled_at IS NULL)
RETURNING s.id

-- name: begin_expired_send
-- A send that never started and is past its valid_until: it runs only to be settled.
UPDATE send
SET status = 'sending', started_at = now(), queued_at = coalesce(queued_at, now()),
    paused_at = NULL, pause_reason = NULL, paused_by = NULL
WHERE id = %(send_id)s AND status IN ('pending', 'queued', 'scheduled', 'paused') AND valid_until <= now()
