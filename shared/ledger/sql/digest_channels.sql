-- name: insert_digest_channel
-- A person sets a channel up. Nothing is returned when the name is taken.
INSERT INTO digest_channel (tenant_id, name, type, config, kinds, min_severity, tells_existing, retry_base_delay_ms,
                            max_delivery_attempts, retention_days)
VALUES (%(tenant_id)s, %(name)s, %(type)s, %(config)s, %(kinds)s, %(min_severity)s, %(tells_existing)s,
        %(retry_base_delay_ms)s, %(max_delivery_attempts)s, %(retention_days)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: put_digest_channel_secret
-- What the channel proves itself with. Read by `take_digest_channel` alone.
INSERT INTO digest_channel_secret (channel_id, secret) VALUES (%(channel_id)s, %(secret)s)
ON CONFLICT (channel_id) DO UPDATE
SET secret = (digest_channel_secret.secret - %(removed)s::text[]) || excluded.secret

-- name: update_digest_channel
-- A person changes a channel, which is then looked at anew: a wait or refusal was another set-up's. With another filter
-- events from now on count, and findings that are so, whenever they became so: the caller takes what is new to it for
-- known, unless it is to be told. Guard: `wait_for_events` was asked in this
-- transaction, so that each event is received either before, and found by the filter as it was, or after.
UPDATE digest_channel
SET config = (config - %(removed)s::text[]) || %(config)s, kinds = %(kinds)s, min_severity = %(min_severity)s,
    retry_base_delay_ms = %(retry_base_delay_ms)s, max_delivery_attempts = %(max_delivery_attempts)s,
    retention_days = %(retention_days)s, wait_until = NULL, not_configured = NULL, not_configured_at = NULL,
    setup_version = setup_version + 1,
    events_from = CASE WHEN (kinds, min_severity) IS DISTINCT FROM (%(kinds)s::text[], %(min_severity)s)
                       THEN statement_timestamp() ELSE events_from END,
    detected_at = CASE WHEN (kinds, min_severity) IS DISTINCT FROM (%(kinds)s::text[], %(min_severity)s)
                       THEN NULL ELSE detected_at END
WHERE id = %(id)s

-- name: enable_digest_channel
-- A person switches a channel on or off. What was found meanwhile waits for it.
UPDATE digest_channel SET enabled = %(enabled)s, wait_until = NULL
WHERE id = %(id)s AND enabled <> %(enabled)s
RETURNING id

-- name: lock_digest_channel
-- A person removes or changes it: dispatch leaves it alone meanwhile.
SELECT id FROM digest_channel WHERE id = %(id)s FOR UPDATE

-- name: count_channel_losses
-- What goes with a channel: its notifications, those not told yet, those given up, its messages; each counted up to
-- `most`, where it is given.
SELECT (SELECT count(*)::int FROM (SELECT FROM notification WHERE channel_id = %(id)s LIMIT %(most)s::bigint) AS n),
       (SELECT count(*)::int FROM (SELECT FROM notification WHERE channel_id = %(id)s AND final_at IS NULL
                                   LIMIT %(most)s::bigint) AS n),
       (SELECT count(*)::int FROM (SELECT FROM notification WHERE channel_id = %(id)s AND status = 'dead_lettered'
                                   LIMIT %(most)s::bigint) AS n),
       (SELECT count(*)::int FROM (SELECT FROM digest WHERE channel_id = %(id)s LIMIT %(most)s::bigint) AS d)

-- name: remove_notifications_of_channel
-- A channel is removed: its notifications, in chunks.
DELETE FROM notification WHERE id = ANY (
    SELECT id FROM notification WHERE channel_id = %(id)s ORDER BY -id LIMIT %(limit)s
)

-- name: remove_digests_of_channel
-- And its messages.
DELETE FROM digest WHERE channel_id = %(id)s

-- name: remove_digest_channel
-- And itself, with its secrets.
DELETE FROM digest_channel WHERE id = %(id)s RETURNING id

-- name: select_digest_channels
-- Channels as people see them, one of a name or all, with what waits for them: found and not told yet, the earliest
-- moment of it, in backoff, dead letters that nobody discarded and since when the first of them, whether it waits since
-- it was told to or refused, and when the first message was not taken after the last that was: also while that one is
-- repeated, and whatever came of a repeat.
SELECT c.id, c.tenant_id, t.name, c.name, c.type, c.config, c.kinds, c.min_severity, c.tells_existing, c.enabled,
       c.retry_base_delay_ms, c.max_delivery_attempts, c.retention_days, c.created_at, c.last_sent_at, c.wait_until,
       c.not_configured, c.not_configured_at, w.waiting, w.retrying, greatest(w.next_at, c.wait_until),
       d.dead_lettered, d.since, coalesce(c.wait_until > now(), false), f.since
FROM digest_channel c
JOIN tenant t ON t.id = c.tenant_id
CROSS JOIN LATERAL (
    SELECT count(*)::int AS waiting, count(*) FILTER (WHERE n.status = 'retrying')::int AS retrying,
           min(n.next_attempt_at) AS next_at
    FROM notification n WHERE n.channel_id = c.id AND n.final_at IS NULL
) AS w
CROSS JOIN LATERAL (
    SELECT count(*)::int AS dead_lettered, min(n.final_at) AS since
    FROM notification n WHERE n.channel_id = c.id AND n.status = 'dead_lettered' AND n.discarded_at IS NULL
) AS d
LEFT JOIN LATERAL (
    SELECT m.created_at AS since FROM digest m
    WHERE m.channel_id = c.id AND m.created_at > coalesce(c.last_sent_at, '-infinity')
      AND (m.status IN ('failed', 'frozen') OR m.status = 'calling' AND m.maybe_known)
      AND (m.maybe_known OR m.outcome <> 'not_attempted')
    ORDER BY m.created_at LIMIT 1
) AS f ON true
WHERE %(name)s::text IS NULL OR c.name = %(name)s
ORDER BY c.name

-- name: enabled_digest_channels
-- Dispatch: which channels to look at, those longest without a message first.
SELECT id FROM digest_channel WHERE enabled ORDER BY last_sent_at NULLS FIRST, id

-- name: take_digest_channel
-- Dispatch takes a channel for one step, in its transaction. Guards: enabled, and no other dispatcher is at it. For a
-- test by hand also a disabled one.
SELECT c.id, c.tenant_id, c.name, c.type, c.config, coalesce(s.secret, '{}'::jsonb), c.retry_base_delay_ms,
       c.max_delivery_attempts, c.baselined_at IS NOT NULL, c.tells_existing, coalesce(c.wait_until > now(), false),
       c.setup_version, t.email_from, now()
FROM digest_channel c
JOIN tenant t ON t.id = c.tenant_id
LEFT JOIN digest_channel_secret s ON s.channel_id = c.id
WHERE c.id = %(id)s AND (c.enabled OR %(even_disabled)s)
FOR NO KEY UPDATE OF c SKIP LOCKED

-- name: look_again_at_digest_channels
-- A person runs a dispatch: channels that were refused are looked at now.
UPDATE digest_channel SET wait_until = NULL WHERE not_configured IS NOT NULL AND wait_until IS NOT NULL

-- name: note_channel_sent
-- It took a message, a digest (`told`) or a test: nothing is wrong with it.
UPDATE digest_channel
SET last_sent_at = CASE WHEN %(told)s THEN now() ELSE last_sent_at END, wait_until = NULL, not_configured = NULL, not_configured_at = NULL
WHERE id = %(id)s

-- name: hurry_items
-- A channel that takes messages again is told with its next dispatch what its backoff made wait. Those who do this, and
-- who put what is due into messages, hold the channel.
UPDATE notification SET next_attempt_at = now()
WHERE channel_id = %(id)s AND status = 'retrying' AND next_attempt_at > now()

-- name: hurry_digests
-- Likewise what may have been taken.
UPDATE digest SET next_attempt_at = now()
WHERE channel_id = %(id)s AND status = 'frozen' AND next_attempt_at > now()

-- name: note_channel_waits
-- It told us to slow down. Guard: it is set up as it was when it was called.
UPDATE digest_channel SET wait_until = now() + %(seconds)s * interval '1 second'
WHERE id = %(id)s AND setup_version = %(setup_version)s
RETURNING id

-- name: note_channel_refused
-- It refused us as we are set up. It is looked at again after as long as it has been so, an hour at most. Guard: as
-- above. Returns whether that is news.
UPDATE digest_channel c
SET not_configured = %(reason)s, not_configured_at = coalesce(c.not_configured_at, now()),
    wait_until = now() + least(greatest(now() - coalesce(c.not_configured_at, now()),
                                        %(recheck_s)s * interval '1 second'), interval '1 hour')
FROM digest_channel before
WHERE c.id = %(id)s AND c.setup_version = %(setup_version)s AND before.id = c.id
RETURNING before.not_configured IS NULL
