-- An `unsure` row with `prove_at` is being proved; its batch, and so its send, stays open until no row of it is.
-- Rows are found by key, then by place (ctid), as everywhere: see deliveries.sql. Batches are locked by a statement of
-- their own, so that the next one sees what whoever held them wrote.

-- name: find_batches_to_prove
-- The prover: batches with a row whose time has come, those of the tenant with the fewest first, the oldest first.
SELECT b.send_id, b.batch_no
FROM (
    SELECT send_id, batch_no, prove_at FROM batch
    WHERE prove_at <= now()
    ORDER BY prove_at LIMIT %(among)s
) AS b
JOIN send s ON s.id = b.send_id
ORDER BY row_number() OVER (PARTITION BY s.tenant_id ORDER BY b.prove_at), b.prove_at
LIMIT %(limit)s

-- name: lock_batch_to_prove
-- First of a look: the batch. Another prover's is passed by.
SELECT first_row, last_row FROM batch
WHERE send_id = %(send_id)s AND batch_no = %(batch_no)s AND prove_at <= now()
FOR UPDATE SKIP LOCKED

-- name: lock_batch_of_proofs
-- First of a record: the batch, waited for.
SELECT first_row, last_row FROM batch
WHERE send_id = %(send_id)s AND batch_no = %(batch_no)s
FOR UPDATE

-- name: take_rows_to_prove
-- The rows of a locked batch that are due for a look, kept from other provers for `hold_s`: committed before the call.
WITH due AS (
    SELECT d.place FROM (
        SELECT ctid AS place, prove_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN %(first_row)s AND %(last_row)s AND prove_at <= now()
        OFFSET 0
    ) AS d
    ORDER BY d.prove_at
    LIMIT %(limit)s
), taken AS (
    UPDATE delivery d
    SET prove_at = now() + %(hold_s)s * interval '1 second'
    FROM due
    WHERE d.ctid = due.place AND d.prove_at <= now()
    RETURNING d.row_no, d.channel, d.address, d.params, d.attempt_count, d.epoch, d.claim_id, d.last_attempt_at,
              d.prove_at, d.prove_count, d.provider, d.credential
), rest AS (
    SELECT min(d.prove_at) AS prove_at FROM (
        SELECT ctid AS place, prove_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN %(first_row)s AND %(last_row)s AND prove_at IS NOT NULL
        OFFSET 0
    ) AS d
    WHERE NOT EXISTS (SELECT 1 FROM due WHERE due.place = d.place)
), noted AS (
    UPDATE batch b
    SET prove_at = least(rest.prove_at, (SELECT max(prove_at) FROM taken))
    FROM rest
    WHERE b.send_id = %(send_id)s AND b.batch_no = %(batch_no)s AND b.proving > 0
)
SELECT row_no, channel, address, params, attempt_count, epoch, claim_id, last_attempt_at,
       (SELECT min(a.started_at) FROM attempt a
        WHERE a.send_id = %(send_id)s AND a.row_no = taken.row_no AND a.epoch = taken.epoch
          AND a.code = 'proved_absent'),
       prove_at, prove_count, provider, credential
FROM taken ORDER BY row_no

-- name: record_proofs
-- What a look at rows of one locked batch found: settled, owed again, parked, or to be looked at later.
-- Guard and fence: `unsure` and being proved, under the claim in question, and under this look (`held_until`); that
-- the message was taken is true whoever looked, so it needs the claim only. What is not returned was settled meanwhile.
WITH proof AS (
    SELECT * FROM unnest(
        %(rows)s::int[], %(claims)s::uuid[], %(held)s::timestamptz[], %(became)s::text[], %(uses)s::bool[],
        %(next)s::timestamptz[], %(prove)s::timestamptz[], %(absent)s::bool[], %(refs)s::text[], %(receipts)s::text[],
        %(details)s::text[], %(outcomes)s::text[], %(codes)s::text[], %(signatures)s::text[], %(evidence)s::jsonb[]
    ) AS p (row_no, claim_id, held_until, became, uses, next_attempt_at, prove_at, absent, ref, receipt, detail, outcome,
            code, signature, evidence)
), this AS (
    SELECT p.*, d.place, d.started_at FROM proof p
    CROSS JOIN LATERAL (
        SELECT ctid AS place, last_attempt_at AS started_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no = p.row_no AND status = 'unsure' AND claim_id = p.claim_id
          AND prove_at IS NOT NULL AND (p.became = 'sent' OR prove_at = p.held_until)
        OFFSET 0
    ) AS d
), done AS (
    UPDATE delivery d
    SET status = p.became, attempt_count = d.attempt_count - 1 + p.uses::int,
        claim_id = CASE WHEN p.became = 'unsure' THEN d.claim_id END,
        next_attempt_at = p.next_attempt_at, prove_at = p.prove_at, prove_count = d.prove_count + p.absent::int,
        settled_at = CASE WHEN p.became IN ('owed', 'retrying') OR p.prove_at IS NOT NULL THEN NULL ELSE now() END,
        provider_ref = coalesce(p.ref, d.provider_ref), receipt_status = coalesce(p.receipt, d.receipt_status),
        last_error = CASE WHEN p.became = 'sent' THEN d.last_error ELSE p.detail END
    FROM this p
    WHERE d.ctid = p.place AND d.status = 'unsure' AND d.claim_id = p.claim_id
    RETURNING d.row_no, d.channel, d.epoch, d.attempt_count, d.provider, p.claim_id, p.became, p.prove_at,
              p.ref, p.detail, p.outcome, p.code, p.signature, p.evidence, p.started_at
), logged AS (
    INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code, detail,
                         signature, provider_ref, started_at, ended_at, evidence)
    SELECT %(send_id)s, row_no, gen_random_uuid(), epoch, attempt_count, channel, coalesce(provider, 'unknown'), outcome,
           became, code, detail, signature, ref, started_at, now(),
           coalesce(evidence, '{}') || jsonb_build_object('proof_of_claim', claim_id::text)
    FROM done
    WHERE prove_at IS NULL
), minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, resolved, sent, failed, dead_lettered,
                                   suppressed, retried)
    SELECT date_trunc('minute', now()), pg_backend_pid(), s.mode, d.channel, coalesce(d.provider, 'unknown'),
           CASE WHEN d.became = 'sent'
                THEN took_bucket_v1(d.started_at - greatest(s.created_at, s.send_at, s.resumed_at)) ELSE 0 END,
           count(*), count(*) FILTER (WHERE d.became = 'sent'), count(*) FILTER (WHERE d.became = 'failed'),
           count(*) FILTER (WHERE d.became = 'dead_lettered'), count(*) FILTER (WHERE d.became = 'suppressed'),
           count(*) FILTER (WHERE d.became = 'retrying')
    FROM done d
    JOIN send s ON s.id = %(send_id)s
    WHERE d.became <> 'unsure'
    GROUP BY 3, 4, 5, 6
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET resolved = m.resolved + excluded.resolved, sent = m.sent + excluded.sent, failed = m.failed + excluded.failed,
        dead_lettered = m.dead_lettered + excluded.dead_lettered, suppressed = m.suppressed + excluded.suppressed,
        retried = m.retried + excluded.retried
), counted AS (
    SELECT count(*) FILTER (WHERE became <> 'unsure')::int AS gone,
           count(*) FILTER (WHERE prove_at IS NULL)::int AS proved,
           count(*) FILTER (WHERE became = 'owed')::int AS owed,
           count(*) FILTER (WHERE became = 'retrying')::int AS retrying,
           count(*) FILTER (WHERE became = 'sent')::int AS sent,
           count(*) FILTER (WHERE became = 'failed')::int AS failed,
           count(*) FILTER (WHERE became = 'dead_lettered')::int AS dead_lettered,
           count(*) FILTER (WHERE became = 'suppressed')::int AS suppressed,
           min(CASE WHEN became = 'owed' THEN now() END) AS owed_at,
           min(prove_at) AS prove_at
    FROM done
), waiting AS (
    SELECT min(next_attempt_at) AS due_at FROM this WHERE became = 'retrying'
), rest AS (
    SELECT min(d.prove_at) AS prove_at FROM (
        SELECT ctid AS place, prove_at FROM delivery
        WHERE send_id = %(send_id)s AND row_no BETWEEN %(first_row)s AND %(last_row)s AND prove_at IS NOT NULL
        OFFSET 0
    ) AS d
    WHERE NOT EXISTS (SELECT 1 FROM this WHERE this.place = d.place)
), noted AS (
    UPDATE batch b
    SET unsure = b.unsure - c.gone, owed = b.owed + c.owed, retrying = b.retrying + c.retrying, sent = b.sent + c.sent,
        failed = b.failed + c.failed, dead_lettered = b.dead_lettered + c.dead_lettered,
        suppressed = b.suppressed + c.suppressed, proving = b.proving - c.proved,
        prove_at = CASE WHEN b.proving > c.proved THEN least(rest.prove_at, c.prove_at) END,
        due_at = CASE WHEN b.holder IS NULL THEN least(b.due_at, c.owed_at, waiting.due_at) ELSE b.due_at END,
        settled_at = CASE WHEN b.holder IS NULL AND b.proving = c.proved
                               AND b.owed + c.owed + b.sending + b.retrying + c.retrying = 0 THEN now() END
    FROM counted c, waiting, rest
    WHERE b.send_id = %(send_id)s AND b.batch_no = %(batch_no)s
)
SELECT row_no FROM done
