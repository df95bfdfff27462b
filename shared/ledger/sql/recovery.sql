-- What the reconciler finds and does. Finders are level-triggered ("older than", never a window) and give pages in
-- which tenants take turns, each behind the last one seen of it; every change has its own guard. What was seen is an object
-- by tenant and no relation: without hash joins each row found would be compared with every tenant.

-- name: find_stuck_sends
-- Reconciler: sends that nobody took further. `pending`: its message was never enqueued, or is lost. `ingestion`:
-- resumed and never fanned out. `scheduled`: long past its time.
WITH stuck AS (
    SELECT s.id, s.tenant_id,
           CASE s.status WHEN 'pending' THEN 'pending' WHEN 'queued' THEN 'ingestion' ELSE 'scheduled' END AS kind
    FROM send s
    WHERE s.status IN ('pending', 'queued', 'scheduled')
      AND CASE s.status
          WHEN 'pending' THEN s.created_at < now() - %(pending_s)s * interval '1 second'
          WHEN 'queued' THEN greatest(s.queued_at, s.resumed_at) < now() - %(stale_s)s * interval '1 second'
          ELSE s.send_at < now() - %(stale_s)s * interval '1 second' END
      AND s.id > coalesce((%(sends)s::jsonb ->> s.tenant_id::text)::uuid, '00000000-0000-0000-0000-000000000000')
), turns AS (
    SELECT kind, id, tenant_id, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS turn FROM stuck
)
SELECT kind, tenant_id, id FROM turns ORDER BY turn, tenant_id LIMIT %(limit)s

-- name: start_overdue_send
-- Reconciler: a scheduled send long past its time. Guard: it is still scheduled and its time has come.
UPDATE send SET status = 'sending', started_at = now()
WHERE id = %(send_id)s AND status = 'scheduled' AND send_at <= now()
RETURNING id

-- name: find_stuck_batches
-- Reconciler: batches whose holder is dead, or alive without having recorded anything for too long.
WITH stuck AS (
    SELECT b.send_id, b.batch_no, b.channel, b.holder, s.tenant_id, s.lane, w.id IS NOT NULL AS alive
    FROM batch b
    JOIN send s ON s.id = b.send_id
    LEFT JOIN worker w ON w.id = b.holder AND w.lease_until > now()
    WHERE b.holder IS NOT NULL
      AND (w.id IS NULL OR greatest(b.leased_at, b.progress_at) < now() - %(stale_s)s * interval '1 second')
      AND (b.send_id, b.batch_no) > (coalesce((%(sends)s::jsonb ->> s.tenant_id::text)::uuid,
                                              '00000000-0000-0000-0000-000000000000'),
                                     coalesce((%(batches)s::jsonb ->> s.tenant_id::text)::int, 0))
), turns AS (
    SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY send_id, batch_no) AS turn FROM stuck
)
SELECT tenant_id, send_id, batch_no, channel, lane, holder, alive FROM turns ORDER BY turn, tenant_id LIMIT %(limit)s

-- name: take_stalled_batch
-- Reconciler: a living holder that records nothing any more loses the batch to a holder that never lives, and its chain
-- with it: its message is stale from here on, so that it can lease nothing and give nothing back. The batch is then
-- freed as a dead worker's is. Guard: the same holder, still without progress.
WITH taken AS (
    UPDATE batch b SET holder = '00000000-0000-0000-0000-000000000000'
    WHERE b.send_id = %(send_id)s AND b.batch_no = %(batch_no)s AND b.holder = %(worker)s
      AND greatest(b.leased_at, b.progress_at) < now() - %(stale_s)s * interval '1 second'
    RETURNING b.channel, b.chain_no
), stopped AS (
    DELETE FROM chain c USING taken t
    WHERE c.send_id = %(send_id)s AND c.channel = t.channel AND c.chain_no = t.chain_no AND c.holder = %(worker)s
)
SELECT 1 FROM taken

-- name: mend_batches
-- Reconciler: free batches that no other finder would ever look at: nothing open but not settled, waiting but not due,
-- in a call that nobody makes. No statement leaves one behind; a person's hand or a fault of ours might.
WITH lost AS (
    SELECT b.send_id, b.batch_no FROM batch b
    WHERE b.settled_at IS NULL AND b.holder IS NULL
      AND (b.sending > 0 OR (b.owed + b.retrying > 0) <> (b.due_at IS NOT NULL)
           OR b.owed + b.sending + b.retrying + b.proving = 0)
    ORDER BY b.send_id, b.batch_no LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE batch b
SET holder = CASE WHEN b.sending > 0 THEN '00000000-0000-0000-0000-000000000000'::uuid END,
    chain_no = CASE WHEN b.sending > 0 THEN 0 END,
    leased_at = CASE WHEN b.sending > 0 THEN now() END,
    due_at = CASE WHEN b.owed + b.retrying > 0 THEN coalesce(b.due_at, now()) END,
    settled_at = CASE WHEN b.owed + b.sending + b.retrying + b.proving = 0 THEN now() END
FROM lost
WHERE b.send_id = lost.send_id AND b.batch_no = lost.batch_no
RETURNING b.send_id, b.batch_no

-- name: find_spent_batches
-- Reconciler: free batches that were recovered as often as allowed without any progress, and still owe something.
WITH spent AS (
    SELECT b.send_id, b.batch_no, b.channel, s.tenant_id, s.lane
    FROM batch b
    JOIN send s ON s.id = b.send_id
    WHERE b.settled_at IS NULL AND b.recovery_count > 0 AND b.recovery_count > %(most)s
      AND b.holder IS NULL AND b.owed + b.retrying > 0
      AND (b.send_id, b.batch_no) > (coalesce((%(sends)s::jsonb ->> s.tenant_id::text)::uuid,
                                              '00000000-0000-0000-0000-000000000000'),
                                     coalesce((%(batches)s::jsonb ->> s.tenant_id::text)::int, 0))
), turns AS (
    SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY send_id, batch_no) AS turn FROM spent
)
SELECT tenant_id, send_id, batch_no, channel, lane FROM turns ORDER BY turn, tenant_id LIMIT %(limit)s

-- name: find_waited_out_batches
-- Reconciler: free batches of sends in progress over one way (channel and mode) whose provider is in an outage, with
-- everything owed in it for `wait_s`: since acceptance, schedule, `resumed_at` (which a person's requeue moves too) or
-- the beginning of the outage, whichever is the latest.
WITH waiting AS (
    SELECT b.send_id, b.batch_no, b.channel, s.tenant_id, s.lane
    FROM send s
    JOIN batch b ON b.send_id = s.id
    WHERE s.status = 'sending' AND s.mode = %(mode)s
      AND greatest(s.created_at, s.send_at, s.resumed_at, %(outage_since)s::timestamptz)
          < now() - %(wait_s)s * interval '1 second'
      AND b.channel = %(channel)s AND b.settled_at IS NULL AND b.holder IS NULL AND b.owed + b.retrying > 0
      AND (b.send_id, b.batch_no) > (coalesce((%(sends)s::jsonb ->> s.tenant_id::text)::uuid,
                                              '00000000-0000-0000-0000-000000000000'),
                                     coalesce((%(batches)s::jsonb ->> s.tenant_id::text)::int, 0))
), turns AS (
    SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY send_id, batch_no) AS turn FROM waiting
)
SELECT tenant_id, send_id, batch_no, channel, lane FROM turns ORDER BY turn, tenant_id LIMIT %(limit)s

-- name: settle_unsent_rows
-- Reconciler: what a batch still owes is settled without a call, `failed` once recovery gave up, `dead_lettered` once
-- an outage was waited out, each with an attempt that says so. Its own unsent rows and no others: what is in a call,
-- unsure or settled stays. Guards: nobody holds the batch, and the reason is still true of it.
WITH spent AS (
    SELECT b.batch_no, b.first_row, b.last_row FROM batch b
    WHERE b.send_id = %(send_id)s AND b.batch_no = %(batch_no)s AND b.holder IS NULL AND b.owed + b.retrying > 0
      AND (%(most)s::int IS NULL OR b.recovery_count > %(most)s)
      AND (%(outage_since)s::timestamptz IS NULL OR EXISTS (
          SELECT 1 FROM provider_state p
          WHERE p.provider = %(account)s AND p.credential = %(credential)s AND p.refused_since = %(outage_since)s
            AND p.refused_since > coalesce(p.last_accepted_at, '-infinity')))
    FOR UPDATE
), rows AS (
    SELECT d.* FROM spent s CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN s.first_row AND s.last_row AND status IN ('owed', 'retrying')
        OFFSET 0
    ) AS d
), settled AS (
    UPDATE delivery d
    SET status = %(became)s, settled_at = now(), next_attempt_at = NULL, last_error = %(detail)s
    FROM rows r
    WHERE d.ctid = r.place AND d.status IN ('owed', 'retrying')
    RETURNING d.row_no, d.epoch, d.attempt_count, r.status AS was
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         signature, started_at, ended_at)
    SELECT %(send_id)s, row_no, gen_random_uuid(), epoch, attempt_count, %(channel)s, %(provider)s, %(outcome)s,
           %(became)s, %(outcome)s, %(detail)s, %(signature)s, now(), now()
    FROM settled
), counted AS (
    SELECT count(*)::int AS rows, count(*) FILTER (WHERE was = 'owed')::int AS owed,
           count(*) FILTER (WHERE was = 'retrying')::int AS retrying
    FROM settled
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, failed, dead_lettered)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, %(channel)s, %(provider)s, 0,
           CASE WHEN %(became)s = 'failed' THEN c.rows ELSE 0 END,
           CASE WHEN %(became)s = 'dead_lettered' THEN c.rows ELSE 0 END
    FROM counted c
    JOIN send s ON s.id = %(send_id)s
    WHERE c.rows > 0
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET failed = m.failed + excluded.failed, dead_lettered = m.dead_lettered + excluded.dead_lettered
)
UPDATE batch b
SET owed = b.owed - c.owed, retrying = b.retrying - c.retrying,
    failed = b.failed + CASE WHEN %(became)s = 'failed' THEN c.rows ELSE 0 END,
    dead_lettered = b.dead_lettered + CASE WHEN %(became)s = 'dead_lettered' THEN c.rows ELSE 0 END,
    due_at = CASE WHEN b.owed + b.retrying > c.rows THEN b.due_at END,
    settled_at = CASE WHEN b.owed + b.retrying = c.rows AND b.sending + b.proving = 0 THEN now() END
FROM spent, counted c
WHERE b.send_id = %(send_id)s AND b.batch_no = spent.batch_no
RETURNING c.rows

-- name: begin_recovery_pass
-- A pass begins, under the fence of the lock that lets it be the only one. Without Redis: one above the newest.
INSERT INTO recovery_pass (worker, fence)
SELECT %(worker)s, coalesce(%(fence)s, (SELECT coalesce(max(fence), 0) + 1 FROM recovery_pass))
RETURNING id, fence

-- name: note_recovery_pass
-- Between two chunks: what a pass has done so far. No row: a newer pass has begun, and this one must stop. (A tick of
-- the due work, fence 0, is none.)
UPDATE recovery_pass p SET counts = %(counts)s
WHERE p.id = %(id)s AND NOT EXISTS (SELECT 1 FROM recovery_pass newer WHERE newer.id > p.id AND newer.fence > 0)
RETURNING p.id

-- name: insert_recovering_tick
-- A tick of the due work recovered something, which takes it seconds where a pass would take a minute: people see it
-- among the passes, under the fence 0 that no pass has.
INSERT INTO recovery_pass (worker, fence, started_at, ended_at, counts)
VALUES (%(worker)s, 0, now() - %(took_s)s * interval '1 second', now(), %(counts)s)

-- name: end_recovery_pass
-- A pass is over. One that died never gets here: `ended_at` stays empty.
UPDATE recovery_pass SET ended_at = now(), counts = %(counts)s, error = %(error)s, unaccounted = %(unaccounted)s
WHERE id = %(id)s

-- name: select_recovery_passes
-- The newest passes, and ticks that recovered something. Callers: `tidings reconcile`, the System tab.
SELECT id, worker, fence, started_at, ended_at, counts, error FROM recovery_pass ORDER BY id DESC LIMIT %(limit)s

-- name: forget_recovery_passes
-- Housekeeping by the reconciler itself: passes older than a month.
DELETE FROM recovery_pass WHERE started_at < now() - interval '30 days'

-- name: lock_recovery
-- The lock of a pass while Redis is away; it ends with the session at the latest.
SELECT pg_try_advisory_lock(hashtext('tidings reconcile'))

-- name: unlock_recovery
-- The end of that pass.
SELECT pg_advisory_unlock(hashtext('tidings reconcile'))
