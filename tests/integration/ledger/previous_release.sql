-- What the release before this one runs while the schema is migrated under it: its statements that write, as they were.
-- Replaced with each release by those of the one before.

-- name: lease_batches
WITH due AS (
    SELECT batch_no FROM batch
    WHERE send_id = %(send_id)s AND channel = %(channel)s AND holder IS NULL AND due_at <= now()
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
WITH held AS (
    SELECT batch_no, first_row, last_row, owed + retrying AS waiting FROM batch
    WHERE send_id = %(send_id)s AND holder = %(worker)s AND channel = %(channel)s AND chain_no = %(chain_no)s
      AND (%(batches)s::int[] IS NULL OR batch_no = ANY (%(batches)s))
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
SET holder = NULL, chain_no = NULL, leased_at = NULL, due_at = due.at,
    settled_at = CASE WHEN b.owed + b.sending + b.retrying = 0 THEN now() END
FROM held LEFT JOIN due USING (batch_no)
WHERE b.send_id = %(send_id)s AND b.batch_no = held.batch_no

-- name: free_abandoned_batch
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
    SET status = 'unsure', attempt_count = d.attempt_count + 1, settled_at = now(),
        last_error = 'the worker died while this call may have been in flight'
    FROM rows r
    WHERE d.ctid = r.place AND r.status = 'sending' AND d.status = 'sending'
    RETURNING d.row_no, d.claim_id, d.epoch, d.attempt_count, d.channel, d.last_attempt_at
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         started_at, ended_at, evidence)
    SELECT %(send_id)s, p.row_no, p.claim_id, p.epoch, p.attempt_count, p.channel, 'unknown', 'ambiguous', 'unsure',
           'worker_died', 'the worker died while this call may have been in flight', p.last_attempt_at, now(),
           jsonb_build_object('worker', %(worker)s::text)
    FROM parked p
    ON CONFLICT DO NOTHING
), due AS (
    SELECT min(coalesce(next_attempt_at, now())) AS at FROM rows WHERE status IN ('owed', 'retrying')
), counted AS (
    SELECT count(*)::int AS parked FROM parked
)
UPDATE batch b
SET holder = NULL, chain_no = NULL, leased_at = NULL, due_at = due.at,
    sending = b.sending - counted.parked, unsure = b.unsure + counted.parked,
    settled_at = CASE WHEN due.at IS NULL AND b.sending = counted.parked THEN now() END
FROM held, due, counted
WHERE b.send_id = %(send_id)s AND b.batch_no = held.batch_no
RETURNING counted.parked

-- name: sweep_batches
WITH open AS (
    SELECT batch_no, first_row, last_row FROM batch
    WHERE send_id = %(send_id)s AND settled_at IS NULL AND holder IS NULL AND owed + retrying > 0
    ORDER BY batch_no LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), rows AS (
    SELECT d.place, o.batch_no FROM open o CROSS JOIN LATERAL (
        SELECT ctid AS place FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN o.first_row AND o.last_row AND status IN ('owed', 'retrying')
        OFFSET 0
    ) AS d
), swept AS (
    UPDATE delivery d
    SET status = %(status)s, settled_at = now(), next_attempt_at = NULL
    FROM rows r
    WHERE d.ctid = r.place AND d.status IN ('owed', 'retrying')
    RETURNING r.batch_no
), counted AS (
    SELECT batch_no, count(*)::int AS rows FROM swept GROUP BY batch_no
)
UPDATE batch b
SET cancelled = b.cancelled + CASE WHEN %(status)s = 'cancelled' THEN c.rows ELSE 0 END,
    expired = b.expired + CASE WHEN %(status)s = 'expired' THEN c.rows ELSE 0 END,
    owed = 0, retrying = 0, due_at = NULL,
    settled_at = CASE WHEN b.sending = 0 THEN now() END
FROM counted c
WHERE b.send_id = %(send_id)s AND b.batch_no = c.batch_no
RETURNING c.rows

-- name: close_cancelled_send
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
WHERE s.id = %(send_id)s AND s.status = 'cancelled'
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = %(send_id)s AND b.settled_at IS NULL)
RETURNING s.id

-- name: claim_window
WITH live AS (
    SELECT tenant_id FROM send
    WHERE id = %(send_id)s AND status = 'sending' AND (valid_until IS NULL OR valid_until > now())
), held AS (
    SELECT b.batch_no, b.first_row, b.last_row FROM batch b
    WHERE b.send_id = %(send_id)s AND b.batch_no = ANY (%(batches)s) AND b.holder = %(worker)s
    FOR UPDATE
), picked AS (
    SELECT d.place, d.row_no, d.status, d.last_attempt_at, h.batch_no
    FROM held h
    CROSS JOIN LATERAL (
        SELECT ctid AS place, row_no, status, last_attempt_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN h.first_row AND h.last_row
          AND status IN ('owed', 'retrying') AND (next_attempt_at IS NULL OR next_attempt_at <= now())
        ORDER BY row_no
        LIMIT %(limit)s
    ) AS d
    WHERE EXISTS (SELECT 1 FROM live)
    ORDER BY d.row_no
    LIMIT %(limit)s
), claimed AS (
    UPDATE delivery d
    SET status = 'sending', claim_id = %(claim)s, next_attempt_at = NULL, last_attempt_at = now(),
        first_attempt_at = coalesce(d.first_attempt_at, now())
    FROM picked p
    WHERE d.ctid = p.place AND d.status IN ('owed', 'retrying')
    RETURNING d.row_no, d.address, d.params, d.attempt_count, d.epoch, d.last_attempt_at,
              p.last_attempt_at AS previous_attempt_at, p.status AS was, p.batch_no
), counted AS (
    SELECT batch_no, count(*) FILTER (WHERE was = 'owed') AS owed, count(*) FILTER (WHERE was = 'retrying') AS retrying
    FROM claimed GROUP BY batch_no
), noted AS (
    UPDATE batch b
    SET owed = b.owed - c.owed, retrying = b.retrying - c.retrying, sending = b.sending + c.owed + c.retrying,
        progress_at = now()
    FROM counted c
    WHERE b.send_id = %(send_id)s AND b.batch_no = ANY (%(batches)s) AND b.batch_no = c.batch_no
)
SELECT c.row_no, c.batch_no, c.address, c.params, c.attempt_count, c.epoch, c.last_attempt_at, c.previous_attempt_at,
       EXISTS (SELECT 1 FROM suppression s, live
               WHERE s.tenant_id = live.tenant_id AND s.channel = %(channel)s AND s.address = lower(c.address))
FROM claimed c
ORDER BY c.row_no

-- name: record_outcomes
WITH result AS (
    SELECT * FROM unnest(
        %(rows)s::int[], %(batches)s::int[], %(became)s::text[], %(uses)s::bool[], %(next)s::timestamptz[],
        %(refs)s::text[], %(errors)s::text[], %(outcomes)s::text[], %(codes)s::text[], %(details)s::text[],
        %(signatures)s::text[], %(ended)s::timestamptz[], %(evidence)s::jsonb[]
    ) AS r (row_no, batch_no, became, uses, next_attempt_at, ref, error, outcome, code, detail, signature, ended_at,
            evidence)
), done AS (
    UPDATE delivery d
    SET status = r.became, attempt_count = d.attempt_count + r.uses::int,
        claim_id = CASE WHEN r.became = 'unsure' THEN d.claim_id END,
        next_attempt_at = r.next_attempt_at,
        settled_at = CASE WHEN r.became IN ('owed', 'retrying') THEN NULL ELSE now() END,
        provider = %(provider)s, provider_ref = coalesce(r.ref, d.provider_ref),
        last_error = coalesce(r.error, d.last_error)
    FROM result r
    WHERE d.send_id = %(send_id)s AND d.row_no = ANY (%(rows)s) AND d.row_no = r.row_no
      AND d.status = 'sending' AND d.claim_id = %(claim)s
    RETURNING d.row_no, d.epoch, d.attempt_count, r.batch_no, r.became, r.outcome, r.code, r.detail, r.signature,
              r.ref, r.ended_at, r.evidence
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         signature, provider_ref, started_at, ended_at, evidence)
    SELECT %(send_id)s, row_no, %(claim)s, epoch, attempt_count, %(channel)s, %(provider)s, outcome, became,
           code, detail, signature, ref, %(started)s, ended_at, evidence
    FROM done
    WHERE outcome NOT IN ('not_attempted', 'suppression_list')
), counted AS (
    SELECT batch_no, count(*)::int AS all_rows,
           count(*) FILTER (WHERE became = 'owed')::int AS owed,
           count(*) FILTER (WHERE became = 'retrying')::int AS retrying,
           count(*) FILTER (WHERE became = 'sent')::int AS sent,
           count(*) FILTER (WHERE became = 'failed')::int AS failed,
           count(*) FILTER (WHERE became = 'dead_lettered')::int AS dead_lettered,
           count(*) FILTER (WHERE became = 'unsure')::int AS unsure,
           count(*) FILTER (WHERE became = 'suppressed')::int AS suppressed
    FROM done GROUP BY batch_no
), noted AS (
    UPDATE batch b
    SET sending = b.sending - c.all_rows, owed = b.owed + c.owed, retrying = b.retrying + c.retrying,
        sent = b.sent + c.sent, failed = b.failed + c.failed, dead_lettered = b.dead_lettered + c.dead_lettered,
        unsure = b.unsure + c.unsure, suppressed = b.suppressed + c.suppressed, progress_at = now()
    FROM counted c
    WHERE b.send_id = %(send_id)s AND b.batch_no = ANY (%(batches)s) AND b.batch_no = c.batch_no
)
SELECT row_no FROM done

-- name: record_late_outcome
WITH done AS (
    UPDATE delivery d
    SET status = %(became)s, claim_id = CASE WHEN %(became)s = 'unsure' THEN d.claim_id END,
        attempt_count = d.attempt_count - 1 + %(uses)s::int,
        next_attempt_at = %(next)s, provider = %(provider)s,
        settled_at = CASE WHEN %(became)s IN ('owed', 'retrying') THEN NULL ELSE now() END,
        provider_ref = coalesce(%(ref)s, d.provider_ref), last_error = coalesce(%(error)s, d.last_error)
    WHERE d.send_id = %(send_id)s AND d.row_no = %(row_no)s AND d.status = 'unsure' AND d.claim_id = %(claim)s
    RETURNING d.row_no, d.epoch, d.attempt_count
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         signature, provider_ref, started_at, ended_at, evidence)
    SELECT %(send_id)s, done.row_no, %(late_claim)s, done.epoch, done.attempt_count, %(channel)s, %(provider)s,
           %(outcome)s, %(became)s, %(code)s, %(detail)s, %(signature)s, %(ref)s, %(started)s, %(ended)s,
           jsonb_build_object('late_result_of_claim', %(claim)s::text)
    FROM done
), reopened AS (
    UPDATE send s
    SET status = CASE WHEN s.status = 'completed' THEN 'sending' ELSE s.status END, completed_at = NULL,
        settled_counts = NULL
    FROM done
    WHERE s.id = %(send_id)s AND s.settled_counts IS NOT NULL
)
UPDATE batch b
SET unsure = b.unsure - 1 + (%(became)s = 'unsure')::int,
    owed = b.owed + (%(became)s = 'owed')::int, retrying = b.retrying + (%(became)s = 'retrying')::int,
    sent = b.sent + (%(became)s = 'sent')::int, failed = b.failed + (%(became)s = 'failed')::int,
    dead_lettered = b.dead_lettered + (%(became)s = 'dead_lettered')::int,
    suppressed = b.suppressed + (%(became)s = 'suppressed')::int,
    due_at = CASE WHEN %(became)s IN ('owed', 'retrying') AND b.holder IS NULL
                  THEN least(b.due_at, coalesce(%(next)s, now())) ELSE b.due_at END,
    settled_at = CASE WHEN %(became)s IN ('owed', 'retrying') THEN NULL ELSE b.settled_at END
FROM done
WHERE b.send_id = %(send_id)s AND done.row_no BETWEEN b.first_row AND b.last_row
RETURNING b.batch_no

-- name: start_send
UPDATE send
SET status = CASE WHEN send_at > now() THEN 'scheduled' ELSE 'sending' END,
    queued_at = coalesce(queued_at, now()),
    started_at = CASE WHEN send_at > now() THEN NULL ELSE now() END
WHERE id = %(send_id)s AND status IN ('pending', 'queued')
RETURNING status

-- name: complete_send
UPDATE send s
SET status = 'completed', completed_at = now(), settled_counts = books.counts
FROM (SELECT %(send_id)s::uuid AS id) AS this
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
WHERE s.id = this.id AND s.status = 'sending'
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.send_id = this.id AND b.settled_at IS NULL)
RETURNING s.id

-- name: insert_send
INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, name, content, params, accepted, duplicates,
                  segments, send_at, valid_until)
VALUES (%(id)s, %(tenant_id)s, %(api_key_id)s, %(mode)s, %(lane)s, 'pending', %(name)s, %(content)s, %(params)s,
        %(accepted)s, %(duplicates)s, %(segments)s, %(send_at)s, %(valid_until)s)
RETURNING created_at

-- name: insert_batches
INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, settled_at, owed, failed)
SELECT %(send_id)s, %(first_batch)s + piece, %(channel)s, piece_first, piece_last,
       CASE WHEN bad < piece_last - piece_first + 1 THEN now() END,
       CASE WHEN bad = piece_last - piece_first + 1 THEN now() END,
       piece_last - piece_first + 1 - bad, bad
FROM generate_series(0, (%(rows)s - 1) / %(batch_size)s) AS piece
CROSS JOIN LATERAL (
    SELECT %(first_row)s + piece * %(batch_size)s AS piece_first,
           least(%(first_row)s + (piece + 1) * %(batch_size)s, %(first_row)s + %(rows)s) - 1 AS piece_last
) AS bounds
LEFT JOIN unnest(%(failed_pieces)s::int[], %(failed_counts)s::int[]) AS failure (failed_piece, failed_count)
    ON failed_piece = piece
CROSS JOIN LATERAL (SELECT coalesce(failed_count, 0) AS bad) AS counted
