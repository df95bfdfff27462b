-- name: detect_events
-- Detection: each event that a channel wants to hear of and has not, as one thing to be told; `baseline` writes it down
-- as known. Committed before anything is delivered. Events come into sight when they are committed, so detection looks
-- back ten minutes before it last looked, longer than any transaction may last; but no further than the channel keeps
-- what it was told, when that is shorter than it was switched off: there it has forgotten what it told.
INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, details, finding_key, occurred_at, status,
                          next_attempt_at, final_at)
SELECT c.id, e.dedup_key, e.kind, e.subject, e.severity, e.details, e.finding_key, e.created_at,
       CASE WHEN %(baseline)s THEN 'suppressed' ELSE 'pending' END,
       CASE WHEN NOT %(baseline)s THEN now() END, CASE WHEN %(baseline)s THEN now() END
FROM digest_channel c
JOIN event e ON e.tenant_id = c.tenant_id
    AND e.received_at >= coalesce(greatest(
        c.events_from, c.detected_at - interval '10 minutes',
        CASE WHEN c.retention_days IS NOT NULL AND c.detected_at IS NOT NULL
             THEN least(c.detected_at, now() - c.retention_days * interval '1 day') END
    ), '-infinity')
WHERE c.id = %(channel_id)s
  AND array_position(%(severities)s::text[], e.severity) >= array_position(%(severities)s::text[], c.min_severity)
  AND (c.kinds IS NULL OR e.kind = ANY (c.kinds))
  AND NOT EXISTS (SELECT 1 FROM notification n WHERE n.channel_id = c.id AND n.dedup_key = e.dedup_key)
ORDER BY e.id
ON CONFLICT (channel_id, dedup_key) DO NOTHING

-- name: detect_findings
-- Likewise each finding that is so.
INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, details, finding_key, occurred_at, status,
                          next_attempt_at, final_at)
SELECT c.id, f.dedup_key, f.kind, f.subject, f.severity, f.details, f.key, f.changed_at,
       CASE WHEN %(baseline)s THEN 'suppressed' ELSE 'pending' END,
       CASE WHEN NOT %(baseline)s THEN now() END, CASE WHEN %(baseline)s THEN now() END
FROM digest_channel c
JOIN finding f ON f.tenant_id = c.tenant_id AND f.active
    AND f.changed_at >= coalesce(c.detected_at - interval '10 minutes', '-infinity')
WHERE c.id = %(channel_id)s
  AND array_position(%(severities)s::text[], f.severity) >= array_position(%(severities)s::text[], c.min_severity)
  AND (c.kinds IS NULL OR f.kind = ANY (c.kinds))
  AND NOT EXISTS (SELECT 1 FROM notification n WHERE n.channel_id = c.id AND n.dedup_key = f.dedup_key)
ORDER BY f.changed_at, f.key
ON CONFLICT (channel_id, dedup_key) DO NOTHING

-- name: raise_events
-- What waits and came again as more severe has its place among what is due by that. As far back as `detect_events` looks;
-- and never as a kind that the channel does not hear of.
UPDATE notification n
SET kind = e.kind, subject = e.subject, severity = e.severity, details = e.details
FROM digest_channel c
JOIN event e ON e.tenant_id = c.tenant_id AND e.received_at >= coalesce(c.detected_at - interval '10 minutes', '-infinity')
WHERE c.id = %(channel_id)s AND n.channel_id = c.id AND n.dedup_key = e.dedup_key
  AND n.final_at IS NULL AND n.dispatch_batch_id IS NULL
  AND array_position(%(severities)s::text[], e.severity) > array_position(%(severities)s::text[], n.severity)
  AND (c.kinds IS NULL OR e.kind = ANY (c.kinds))

-- name: raise_findings
-- Likewise what is found to be worse.
UPDATE notification n
SET kind = f.kind, subject = f.subject, severity = f.severity, details = f.details
FROM digest_channel c
JOIN finding f ON f.tenant_id = c.tenant_id AND f.active
    AND f.changed_at >= coalesce(c.detected_at - interval '10 minutes', '-infinity')
WHERE c.id = %(channel_id)s AND n.channel_id = c.id AND n.dedup_key = f.dedup_key AND n.finding_key = f.key
  AND n.final_at IS NULL AND n.dispatch_batch_id IS NULL
  AND array_position(%(severities)s::text[], f.severity) > array_position(%(severities)s::text[], n.severity)
  AND (c.kinds IS NULL OR f.kind = ANY (c.kinds))

-- name: note_detected
-- How far detection has come.
UPDATE digest_channel SET detected_at = now(), baselined_at = coalesce(baselined_at, now()) WHERE id = %(channel_id)s

-- name: select_open_digests
-- Messages of a channel whose outcome is not known: `held` by a call under way, else to be repeated when `due`.
SELECT id, created_at, left_count, taken_over + (status = 'calling')::int, maybe_known OR status = 'calling',
       coalesce(leased_until > now(), false) AS held, coalesce(next_attempt_at <= now(), true) AS due
FROM digest
WHERE channel_id = %(channel_id)s AND status IN ('calling', 'frozen')
ORDER BY created_at

-- name: claim_digest_again
-- The same set under the same id: it was frozen and is due, or its dispatcher died. Its claim is the fence of the call.
UPDATE digest
SET status = 'calling', claim_id = %(claim_id)s, leased_until = now() + %(lease_s)s * interval '1 second',
    taken_over = taken_over + (status = 'calling')::int, maybe_known = true, next_attempt_at = NULL
WHERE id = %(id)s AND status IN ('calling', 'frozen')
  AND coalesce(leased_until <= now(), true) AND coalesce(next_attempt_at <= now(), true)
RETURNING id

-- name: select_items
-- What is in a message, as far as it is still to be told.
SELECT id, dedup_key, kind, subject, severity, details, finding_key, occurred_at, attempt_count, owed_since, was_over
FROM notification
WHERE dispatch_batch_id = %(id)s AND final_at IS NULL
ORDER BY id

-- name: select_due_items
-- Which are due on a channel at this moment, as many as go into one message: the most severe, of those the longest due.
SELECT id FROM notification
WHERE channel_id = %(channel_id)s AND status IN ('pending', 'retrying') AND dispatch_batch_id IS NULL
  AND next_attempt_at <= now()
ORDER BY array_position(%(severities)s::text[], severity) DESC, next_attempt_at, id
LIMIT %(limit)s
FOR NO KEY UPDATE

-- name: count_due_items
-- How many are due on a channel.
SELECT count(*)::int FROM notification
WHERE channel_id = %(channel_id)s AND status IN ('pending', 'retrying') AND dispatch_batch_id IS NULL
  AND next_attempt_at <= now()

-- name: claim_digest
-- A new message; committed, with its items, before its call.
INSERT INTO digest (id, channel_id, status, item_count, left_count, claim_id, leased_until)
VALUES (%(id)s, %(channel_id)s, 'calling', %(items)s, %(left)s, %(claim_id)s,
        now() + %(lease_s)s * interval '1 second')
RETURNING created_at

-- name: put_items_into_digest
-- Guard: they are to be told and in no other message. From here on they say what is so now, for as often as the message
-- is repeated: as their finding has it, where it is the same thing, or their event; but as they were detected where that
-- is of a kind by now that the channel does not hear of. Over is what no active finding says any more, where its own has
-- ended, is gone or is another thing by now. An event may name a finding, which may have another key or never have been
-- handed in: it is over with that one alone.
UPDATE notification n
SET dispatch_batch_id = %(digest_id)s, kind = x.kind, subject = x.subject, severity = x.severity, details = x.details,
    was_over = x.is_over
FROM (
    SELECT o.id, coalesce(f.kind, e.kind, o.kind) AS kind, coalesce(f.subject, e.subject, o.subject) AS subject,
           coalesce(f.severity, e.severity, o.severity) AS severity,
           CASE WHEN f.key IS NOT NULL THEN f.details WHEN e.id IS NOT NULL THEN e.details ELSE o.details END AS details,
           o.finding_key IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM finding a
                               WHERE a.tenant_id = c.tenant_id AND a.active AND a.dedup_key = o.dedup_key)
               AND (known.id IS NULL OR EXISTS (SELECT 1 FROM finding a WHERE a.tenant_id = c.tenant_id
                                                AND a.key = o.finding_key AND NOT a.active)) AS is_over
    FROM notification o
    JOIN digest_channel c ON c.id = o.channel_id
    LEFT JOIN finding f ON f.tenant_id = c.tenant_id AND f.key = o.finding_key AND f.dedup_key = o.dedup_key
        AND (c.kinds IS NULL OR f.kind = ANY (c.kinds))
    LEFT JOIN event known ON known.tenant_id = c.tenant_id AND known.dedup_key = o.dedup_key
    LEFT JOIN event e ON e.id = known.id AND (c.kinds IS NULL OR e.kind = ANY (c.kinds))
    WHERE o.id = ANY (%(ids)s::bigint[])
) AS x
WHERE n.id = x.id AND n.final_at IS NULL AND n.dispatch_batch_id IS NULL

-- name: held_digest_claims
-- The last look before the calls: the seconds for which these claims are still held.
SELECT d.id, extract(epoch FROM d.leased_until - now())::float8
FROM unnest(%(ids)s::uuid[], %(claims)s::uuid[]) AS x (id, claim_id)
JOIN digest d ON d.id = x.id AND d.claim_id = x.claim_id AND d.status = 'calling'

-- name: record_digest
-- A call's outcome. Fence: the claim. Nothing is returned where the message is another dispatcher's by now.
UPDATE digest
SET status = %(status)s, claim_id = NULL, leased_until = NULL, outcome = %(outcome)s, detail = %(detail)s,
    reference = %(reference)s, maybe_known = maybe_known OR %(status)s = 'frozen', taken_over = 0,
    next_attempt_at = CASE WHEN %(status)s = 'frozen' THEN %(next_attempt_at)s::timestamptz END,
    ended_at = CASE WHEN %(status)s <> 'frozen' THEN now() END
WHERE id = %(id)s AND claim_id = %(claim_id)s AND status = 'calling'
RETURNING id

-- name: record_items
-- What its items become. `last_error` is kept when one is sent after all: it says why that took so long. An item stays
-- in its message when it was told by it, or while the message is to be repeated. Nobody has discarded it this time.
UPDATE notification n
SET status = x.status, attempt_count = x.attempt_count, next_attempt_at = x.next_attempt_at,
    last_error = coalesce(%(error)s, n.last_error), sent_at = CASE WHEN x.status = 'sent' THEN now() END,
    final_at = CASE WHEN x.status IN ('sent', 'dead_lettered') THEN now() END, discarded_at = NULL,
    dispatch_batch_id = CASE WHEN x.status = 'sent' OR (x.status = 'retrying' AND %(frozen)s) THEN n.dispatch_batch_id END
FROM unnest(%(ids)s::bigint[], %(statuses)s::text[], %(counts)s::int[], %(next)s::timestamptz[])
     AS x (id, status, attempt_count, next_attempt_at)
WHERE n.id = x.id AND n.dispatch_batch_id = %(digest_id)s AND n.final_at IS NULL

-- name: release_items
-- Nothing became of them: they are due as before, for a later message.
UPDATE notification SET dispatch_batch_id = NULL WHERE dispatch_batch_id = %(digest_id)s AND final_at IS NULL

-- name: add_notification_counts
-- All-time counts behind the metrics. Kinds are the tenants' words: of more than a hundred per channel the further ones
-- are counted together.
INSERT INTO notification_count AS c (channel, kind, became, count)
SELECT %(channel)s, x.kind, x.became, sum(x.count)
FROM (
    SELECT given.became, given.count,
           CASE WHEN EXISTS (SELECT 1 FROM notification_count k WHERE k.channel = %(channel)s AND k.kind = given.kind)
                  OR (SELECT count(DISTINCT k.kind) FROM notification_count k WHERE k.channel = %(channel)s) < 100
                THEN given.kind ELSE 'other' END AS kind
    FROM unnest(%(kinds)s::text[], %(became)s::text[], %(counts)s::bigint[]) AS given (kind, became, count)
) AS x
GROUP BY x.kind, x.became
ORDER BY x.kind, x.became
ON CONFLICT (channel, kind, became) DO UPDATE SET count = c.count + excluded.count

-- name: select_notification_counts
-- For the metrics: what became of notifications since the beginning.
SELECT channel, kind, became, count FROM notification_count ORDER BY channel, kind, became

-- name: count_notifications_waiting
-- For the metrics: found and neither told nor given up, by channel and kind. Kinds are the tenants' words: the hundred of
-- a channel that most wait of are named, the others are counted together.
SELECT channel, CASE WHEN place <= 100 THEN kind ELSE 'other' END AS named, sum(count)::int
FROM (
    SELECT c.name AS channel, n.kind, count(*) AS count,
           row_number() OVER (PARTITION BY c.id ORDER BY count(*) DESC, n.kind) AS place
    FROM digest_channel c
    JOIN notification n ON n.channel_id = c.id AND n.final_at IS NULL
    GROUP BY c.id, c.name, n.kind
) AS counted
GROUP BY channel, named ORDER BY channel, named

-- name: select_notifications
-- The history, newest first, after a keyset cursor. As many of each channel as are asked for, by indexes that only this
-- order has: in that of the primary key the planner would look for what is rare among a million others.
SELECT n.id, c.name, n.dedup_key, n.kind, n.subject, n.severity, n.status, n.attempt_count, n.created_at,
       CASE WHEN n.final_at IS NULL THEN greatest(n.next_attempt_at, c.wait_until) END, n.last_error,
       n.sent_at, n.final_at, n.dispatch_batch_id, n.finding_key, t.name,
       n.discarded_at
FROM digest_channel c
JOIN tenant t ON t.id = c.tenant_id
CROSS JOIN LATERAL (
    SELECT * FROM notification
    WHERE channel_id = c.id AND -id > -%(before)s::bigint
      AND (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(status)s::text IS NULL OR status = %(status)s)
      AND (%(batch)s::uuid IS NULL OR dispatch_batch_id = %(batch)s)
      AND (%(finding)s::text IS NULL OR finding_key = %(finding)s)
    ORDER BY -id LIMIT %(limit)s
) AS n
WHERE (%(channel)s::text IS NULL OR c.name = %(channel)s) AND (%(tenant)s::text IS NULL OR t.name = %(tenant)s)
ORDER BY n.id DESC LIMIT %(limit)s

-- name: select_notification
-- One notification with what stands behind it: its finding as it is now, the message it was put into last, and the
-- operations that took it.
SELECT n.id, c.name, n.dedup_key, n.kind, n.subject, n.severity, n.status, n.attempt_count, n.created_at,
       CASE WHEN n.final_at IS NULL THEN greatest(n.next_attempt_at, c.wait_until) END, n.last_error,
       n.sent_at, n.final_at, n.dispatch_batch_id, n.finding_key, t.name,
       n.discarded_at, n.occurred_at, n.details, f.active, coalesce(f.inactive_at, f.changed_at), d.status, d.reference,
       ARRAY(SELECT i.operation_id FROM operation_notification i JOIN operation o ON o.id = i.operation_id
             WHERE i.notification_id = n.id ORDER BY o.created_at DESC LIMIT 10)
FROM notification n
JOIN digest_channel c ON c.id = n.channel_id
JOIN tenant t ON t.id = c.tenant_id
LEFT JOIN finding f ON f.tenant_id = c.tenant_id AND f.key = n.finding_key
LEFT JOIN digest d ON d.id = n.dispatch_batch_id
WHERE n.id = %(id)s

-- name: select_digests
-- Messages to a channel, newest first.
SELECT d.id, c.name, d.status, d.item_count, d.left_count, d.created_at, d.ended_at, d.next_attempt_at, d.outcome,
       d.detail, d.reference
FROM digest d
JOIN digest_channel c ON c.id = d.channel_id
WHERE %(channel)s::text IS NULL OR c.name = %(channel)s
ORDER BY d.created_at DESC LIMIT %(limit)s
