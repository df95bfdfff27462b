-- name: select_releases
-- When operators last let go of each provider and each queue, within the hour: what waited counts its age from then.
-- Letting go of what nobody held changes nothing.
SELECT target, max(at) FROM audit
WHERE at > now() - interval '1 hour'
  AND (action = 'release' AND result = 'released' OR action = 'resume queue' AND result = 'resumed')
GROUP BY target

-- name: select_ledger_health
-- The server's clock, version, connections and the schema's version. Caller: the pages' snapshot.
SELECT clock_timestamp(), current_setting('server_version'), current_setting('max_connections')::int,
       (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT version_num FROM alembic_version)

-- name: select_recovery_state
-- The newest pass of the reconciler, the clock's newest tick, and the first send: without sends no pass is missed.
SELECT p.started_at, p.ended_at, p.worker, p.error, p.unaccounted,
       (SELECT max(claimed_at) FROM periodic_slot) AS last_tick_at,
       (SELECT created_at FROM send ORDER BY id LIMIT 1) AS first_send_at
FROM (VALUES (1)) AS one
LEFT JOIN LATERAL (
    SELECT started_at, ended_at, worker, error, unaccounted FROM recovery_pass
    WHERE fence > 0 ORDER BY started_at DESC LIMIT 1
) AS p ON true

-- name: sum_recoveries
-- What passes and ticks did in the last hour, by kind.
SELECT k.key, sum((k.value ->> 'found')::bigint)::bigint, sum((k.value ->> 'retried')::bigint)::bigint,
       sum((k.value ->> 'requeued')::bigint)::bigint, sum((k.value ->> 'given_up')::bigint)::bigint
FROM recovery_pass p CROSS JOIN LATERAL jsonb_each(p.counts) AS k
WHERE p.started_at > now() - interval '1 hour'
GROUP BY k.key

-- name: select_recoveries
-- The newest passes and ticks that did something, of the last day.
SELECT id, worker, fence, started_at, ended_at, counts, error FROM recovery_pass
WHERE started_at > now() - interval '1 day' AND (counts <> '{}'::jsonb OR error IS NOT NULL)
ORDER BY started_at DESC LIMIT %(limit)s

-- name: select_newest_errors
-- The newest failure of each provider among the newest 500 of all; masked when it was written.
SELECT DISTINCT ON (f.provider) f.provider, f.ended_at, f.outcome, f.code, f.detail
FROM (
    SELECT provider, ended_at, outcome, code, detail FROM attempt
    WHERE signature IS NOT NULL AND ended_at > now() - interval '1 day'
    ORDER BY ended_at DESC LIMIT 500
) AS f
ORDER BY f.provider, f.ended_at DESC

-- name: select_provider_rates
-- What each provider took per minute in the last five full minutes, of live deliveries.
SELECT provider, sum(sent)::float8 / 5 FROM minute_count
WHERE mode = 'live' AND minute >= date_trunc('minute', now()) - interval '5 minutes' AND minute < date_trunc('minute', now())
GROUP BY provider
