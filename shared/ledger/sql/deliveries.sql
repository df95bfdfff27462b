-- Rows are found by key, then by place (ctid, stable while their batch is locked): the planner knows nothing of a
-- send loaded a second ago, and an unlucky join would read all of it for every window.

-- name: claim_window
-- A chain claims exactly the rows whose calls it is about to make; committed before the first call.
-- Guards: the send is being sent and still valid, the batches are held by this process and locked here, which
-- keeps everybody else from their rows.
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
        first_attempt_at = coalesce(d.first_attempt_at, now()), provider = %(provider)s, credential = %(credential)s
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

-- name: find_claimed_rows
-- The commit of a claim was not heard of, so no call of it was made: what it marked is looked for among the batches that
-- have calls in flight or unsure ones (whoever found our lease lost may have parked them).
SELECT d.row_no, b.batch_no, d.last_attempt_at
FROM batch b
CROSS JOIN LATERAL (
    SELECT row_no, last_attempt_at FROM delivery
    WHERE send_id = b.send_id AND row_no BETWEEN b.first_row AND b.last_row
      AND status IN ('sending', 'unsure') AND claim_id = %(claim)s
    OFFSET 0
) AS d
WHERE b.send_id = %(send_id)s AND b.channel = %(channel)s AND b.sending + b.unsure > 0
ORDER BY d.row_no

-- name: record_outcomes
-- A group of a window's calls has ended: rows, attempts and the batches' counts in one statement.
-- Guard and fence: `sending` under this claim; what somebody else settled, or was changing just now, is not returned.
WITH result AS (
    SELECT * FROM unnest(
        %(rows)s::int[], %(batches)s::int[], %(became)s::text[], %(uses)s::bool[], %(next)s::timestamptz[],
        %(refs)s::text[], %(errors)s::text[], %(outcomes)s::text[], %(codes)s::text[], %(details)s::text[],
        %(signatures)s::text[], %(ended)s::timestamptz[], %(evidence)s::jsonb[], %(prove)s::timestamptz[]
    ) AS r (row_no, batch_no, became, uses, next_attempt_at, ref, error, outcome, code, detail, signature, ended_at,
            evidence, prove_at)
), ours AS (
    SELECT r.*, d.place FROM result r
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM delivery
        WHERE send_id = %(send_id)s AND row_no = r.row_no AND status = 'sending' AND claim_id = %(claim)s
        OFFSET 0
    ) AS d
), done AS (
    UPDATE delivery d
    SET status = r.became, attempt_count = d.attempt_count + r.uses::int,
        claim_id = CASE WHEN r.became = 'unsure' THEN d.claim_id END,
        next_attempt_at = r.next_attempt_at,
        settled_at = CASE WHEN r.became IN ('owed', 'retrying') OR r.prove_at IS NOT NULL THEN NULL ELSE now() END,
        provider = %(provider)s, provider_ref = coalesce(r.ref, d.provider_ref),
        last_error = coalesce(r.error, d.last_error), prove_at = r.prove_at, prove_count = 0
    FROM ours r
    WHERE d.ctid = r.place AND d.status = 'sending' AND d.claim_id = %(claim)s
    RETURNING d.row_no, d.epoch, d.attempt_count, r.batch_no, r.became, r.outcome, r.code, r.detail, r.signature,
              r.ref, r.ended_at, r.evidence, r.prove_at
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
           count(*) FILTER (WHERE became = 'suppressed')::int AS suppressed,
           count(prove_at)::int AS proving, min(prove_at) AS prove_at,
           bool_or(outcome NOT IN ('not_attempted', 'ambiguous')) AS moved,
           count(*) FILTER (WHERE outcome NOT IN ('not_attempted', 'suppression_list')) AS calls,
           count(*) FILTER (WHERE outcome = 'throttled') AS throttled,
           max(ended_at) FILTER (WHERE became = 'sent') AS sent_at
    FROM done GROUP BY batch_no
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, calls, sent, failed, dead_lettered,
                                   unsure, suppressed, retried, throttled)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, %(channel)s, %(provider)s,
           coalesce(took_bucket_v1(max(c.sent_at) - greatest(s.created_at, s.send_at, s.resumed_at)), 0),
           sum(c.calls), sum(c.sent), sum(c.failed), sum(c.dead_lettered), sum(c.unsure), sum(c.suppressed),
           sum(c.retrying), sum(c.throttled)
    FROM counted c
    JOIN send s ON s.id = %(send_id)s
    GROUP BY s.id
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET calls = m.calls + excluded.calls, sent = m.sent + excluded.sent, failed = m.failed + excluded.failed,
        dead_lettered = m.dead_lettered + excluded.dead_lettered, unsure = m.unsure + excluded.unsure,
        suppressed = m.suppressed + excluded.suppressed, retried = m.retried + excluded.retried,
        throttled = m.throttled + excluded.throttled
), noted AS (
    UPDATE batch b
    SET sending = b.sending - c.all_rows, owed = b.owed + c.owed, retrying = b.retrying + c.retrying,
        sent = b.sent + c.sent, failed = b.failed + c.failed, dead_lettered = b.dead_lettered + c.dead_lettered,
        unsure = b.unsure + c.unsure, suppressed = b.suppressed + c.suppressed, progress_at = now(),
        proving = b.proving + c.proving, prove_at = least(b.prove_at, c.prove_at),
        -- An answer is progress; a call nobody made, or one that nobody knows the end of, is not.
        recovery_count = CASE WHEN c.moved THEN 0 ELSE b.recovery_count END
    FROM counted c
    WHERE b.send_id = %(send_id)s AND b.batch_no = ANY (%(batches)s::int[]) AND b.batch_no = c.batch_no
)
SELECT row_no FROM done

-- name: lock_for_late_outcome
-- What settles an unsure row from outside its window locks in the order of everybody: the send, the batch, then rows.
WITH above AS (
    SELECT id FROM send WHERE id = %(send_id)s FOR NO KEY UPDATE
)
SELECT b.batch_no FROM above
CROSS JOIN LATERAL (
    SELECT batch_no FROM batch
    WHERE send_id = above.id AND %(row_no)s BETWEEN first_row AND last_row
    FOR UPDATE
) AS b

-- name: record_late_outcome
-- A call outlived its lease, or somebody outside (a receipt, a slow look-up) knows what became of it: its row is
-- `unsure` meanwhile, being proved or parked. Late proof wins over both.
-- Guard and fence: `unsure` under this claim; a result that is unsure itself says nothing twice (its commit was not
-- heard of, and it is recorded again); retention has not begun to remove its send. The batch is open again when the row
-- is; a send that was finished or swept meanwhile is looked at once more, for what it owes and for its totals. The send
-- is written in any case: one that is being finished at this moment must not miss the row (see complete_send).
WITH this AS (
    SELECT ctid AS place, prove_at FROM delivery
    WHERE send_id = %(send_id)s AND row_no = %(row_no)s AND status = 'unsure' AND claim_id = %(claim)s
      AND NOT (%(became)s = 'unsure' AND EXISTS (
          SELECT 1 FROM attempt a
          WHERE a.send_id = %(send_id)s AND a.row_no = %(row_no)s AND a.claim_id = %(claim)s
            AND a.ended_at = %(ended)s))
      AND NOT EXISTS (SELECT 1 FROM send WHERE id = %(send_id)s AND forgotten_at IS NOT NULL)
), done AS (
    UPDATE delivery d
    SET status = %(became)s, claim_id = CASE WHEN %(became)s = 'unsure' THEN d.claim_id END,
        attempt_count = d.attempt_count - 1 + %(uses)s::int,
        next_attempt_at = %(next)s, provider = %(provider)s,
        settled_at = CASE WHEN %(became)s IN ('owed', 'retrying') THEN NULL
                          WHEN %(became)s = 'unsure' THEN d.settled_at ELSE now() END,
        provider_ref = coalesce(%(ref)s, d.provider_ref), last_error = coalesce(%(error)s, d.last_error),
        prove_at = CASE WHEN %(became)s = 'unsure' THEN d.prove_at END
    FROM this
    WHERE d.ctid = this.place AND d.status = 'unsure' AND d.claim_id = %(claim)s
    RETURNING d.row_no, d.epoch, d.attempt_count,
              (this.prove_at IS NOT NULL AND d.prove_at IS NULL)::int AS proved
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         signature, provider_ref, started_at, ended_at, evidence)
    SELECT %(send_id)s, done.row_no, %(late_claim)s, done.epoch, done.attempt_count, %(channel)s, %(provider)s,
           %(outcome)s, %(became)s, %(code)s, %(detail)s, %(signature)s, %(ref)s, %(started)s, %(ended)s,
           coalesce(%(evidence)s::jsonb, '{}') || jsonb_build_object('late_result_of_claim', %(claim)s::text)
    FROM done
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, resolved, sent, failed, dead_lettered,
                                   suppressed, retried)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, %(channel)s, %(provider)s,
           CASE WHEN %(became)s = 'sent'
                THEN took_bucket_v1(%(started)s - greatest(s.created_at, s.send_at, s.resumed_at)) ELSE 0 END,
           1, (%(became)s = 'sent')::int, (%(became)s = 'failed')::int, (%(became)s = 'dead_lettered')::int,
           (%(became)s = 'suppressed')::int, (%(became)s = 'retrying')::int
    FROM done
    JOIN send s ON s.id = %(send_id)s
    WHERE %(became)s <> 'unsure'
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET resolved = m.resolved + excluded.resolved, sent = m.sent + excluded.sent, failed = m.failed + excluded.failed,
        dead_lettered = m.dead_lettered + excluded.dead_lettered, suppressed = m.suppressed + excluded.suppressed,
        retried = m.retried + excluded.retried
), reopened AS (
    UPDATE send s
    SET status = CASE WHEN s.status = 'completed' THEN 'sending' ELSE s.status END, completed_at = NULL,
        settled_counts = NULL
    FROM done
    WHERE s.id = %(send_id)s
), left_over AS (
    SELECT min(d.prove_at) AS prove_at
    FROM batch b
    CROSS JOIN LATERAL (
        SELECT prove_at FROM delivery
        WHERE send_id = b.send_id AND row_no BETWEEN b.first_row AND b.last_row AND row_no <> %(row_no)s
          AND prove_at IS NOT NULL
        OFFSET 0
    ) AS d
    WHERE b.send_id = %(send_id)s AND %(row_no)s BETWEEN b.first_row AND b.last_row AND b.proving > 0
)
UPDATE batch b
SET unsure = b.unsure - 1 + (%(became)s = 'unsure')::int,
    owed = b.owed + (%(became)s = 'owed')::int, retrying = b.retrying + (%(became)s = 'retrying')::int,
    sent = b.sent + (%(became)s = 'sent')::int, failed = b.failed + (%(became)s = 'failed')::int,
    dead_lettered = b.dead_lettered + (%(became)s = 'dead_lettered')::int,
    suppressed = b.suppressed + (%(became)s = 'suppressed')::int,
    proving = b.proving - done.proved,
    prove_at = CASE WHEN b.proving = done.proved THEN NULL WHEN done.proved = 1 THEN left_over.prove_at
                    ELSE b.prove_at END,
    due_at = CASE WHEN %(became)s IN ('owed', 'retrying') AND b.holder IS NULL
                  THEN least(b.due_at, coalesce(%(next)s, now())) ELSE b.due_at END,
    settled_at = CASE WHEN %(became)s IN ('owed', 'retrying') THEN NULL
                      WHEN b.holder IS NULL AND b.owed + b.sending + b.retrying = 0 AND b.proving = done.proved
                      THEN coalesce(b.settled_at, now()) ELSE b.settled_at END
FROM done, left_over
WHERE b.send_id = %(send_id)s AND done.row_no BETWEEN b.first_row AND b.last_row
RETURNING b.batch_no

-- name: settle_taken_row
-- A provider's report about a call that we took for one that came to nothing: its row waits for the next call, which
-- would be a second message. Caller: receipts, after `lock_for_late_outcome`.
-- Guards: waiting, in the epoch of the report, called before through the provider that reports.
WITH this AS (
    SELECT ctid AS place, status FROM delivery
    WHERE send_id = %(send_id)s AND row_no = %(row_no)s AND status IN ('owed', 'retrying') AND epoch = %(epoch)s
      AND provider = %(provider)s AND last_attempt_at IS NOT NULL
), done AS (
    UPDATE delivery d
    SET status = 'sent', attempt_count = greatest(d.attempt_count, 1), next_attempt_at = NULL, settled_at = now(),
        provider_ref = coalesce(%(ref)s, d.provider_ref)
    FROM this
    WHERE d.ctid = this.place AND d.status = this.status
    RETURNING d.row_no, d.epoch, d.attempt_count, d.last_attempt_at, this.status AS was
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code,
                         provider_ref, started_at, ended_at, evidence)
    SELECT %(send_id)s, row_no, %(late_claim)s, epoch, attempt_count, %(channel)s, %(provider)s, 'accepted', 'sent',
           'proved_by_receipt', %(ref)s, last_attempt_at, now(), %(evidence)s::jsonb
    FROM done
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, sent)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, %(channel)s, %(provider)s,
           took_bucket_v1(done.last_attempt_at - greatest(s.created_at, s.send_at, s.resumed_at)), 1
    FROM done
    JOIN send s ON s.id = %(send_id)s
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE SET sent = m.sent + excluded.sent
), noted AS (
    UPDATE send s SET settled_counts = NULL FROM done WHERE s.id = %(send_id)s
)
UPDATE batch b
SET owed = b.owed - (done.was = 'owed')::int, retrying = b.retrying - (done.was = 'retrying')::int, sent = b.sent + 1,
    due_at = CASE WHEN b.owed + b.retrying > 1 THEN b.due_at END,
    settled_at = CASE WHEN b.holder IS NULL AND b.owed + b.sending + b.retrying = 1 AND b.proving = 0 THEN now() END
FROM done
WHERE b.send_id = %(send_id)s AND done.row_no BETWEEN b.first_row AND b.last_row
RETURNING b.batch_no

-- name: suppress_addresses
-- The provider refuses these addresses for good: they join the tenant's list.
INSERT INTO suppression (tenant_id, channel, address, reason)
SELECT %(tenant_id)s, %(channel)s, lower(a), %(reason)s FROM unnest(%(addresses)s::text[]) AS a
ON CONFLICT DO NOTHING

-- name: note_failure_group
-- The first failure of a kind names it.
INSERT INTO failure_group (signature, version, channel, provider, outcome, title)
VALUES (%(signature)s, %(version)s, %(channel)s, %(provider)s, %(outcome)s, %(title)s)
ON CONFLICT DO NOTHING
