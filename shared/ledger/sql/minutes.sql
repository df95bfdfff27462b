-- What happened, by minute. The statements that make an edge write its count in the same transaction, each under a
-- row of its own connection (`writer`): nobody waits for anybody. Minutes that are over are folded into fewer rows.

-- name: fold_minutes
-- Housekeeping: the rows of the connections of a minute that is over become one. A row that a long transaction still
-- writes to is passed by, and folded the next time.
WITH gone AS (
    DELETE FROM minute_count
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM minute_count
        WHERE writer <> 0 AND minute < now() - interval '10 minutes'
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING *
)
INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, requests, accepted, calls, sent, failed,
                               dead_lettered, unsure, suppressed, cancelled, expired, retried, throttled, requeued,
                               resolved)
SELECT minute, 0, mode, channel, provider, took, sum(requests), sum(accepted), sum(calls), sum(sent), sum(failed),
       sum(dead_lettered), sum(unsure), sum(suppressed), sum(cancelled), sum(expired), sum(retried), sum(throttled),
       sum(requeued), sum(resolved)
FROM gone
GROUP BY minute, mode, channel, provider, took
ORDER BY minute, mode, channel, provider, took
ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
SET requests = m.requests + excluded.requests, accepted = m.accepted + excluded.accepted,
    calls = m.calls + excluded.calls, sent = m.sent + excluded.sent, failed = m.failed + excluded.failed,
    dead_lettered = m.dead_lettered + excluded.dead_lettered, unsure = m.unsure + excluded.unsure,
    suppressed = m.suppressed + excluded.suppressed, cancelled = m.cancelled + excluded.cancelled,
    expired = m.expired + excluded.expired, retried = m.retried + excluded.retried,
    throttled = m.throttled + excluded.throttled, requeued = m.requeued + excluded.requeued,
    resolved = m.resolved + excluded.resolved

-- name: fold_old_minutes
-- Housekeeping: minutes that no page shows any more join the row of all that is old: totals never fall, and what is
-- summed for them at every snapshot stays small.
WITH gone AS (
    DELETE FROM minute_count
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM minute_count
        WHERE minute > '-infinity' AND minute < now() - interval '3 hours'
        LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING *
)
INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, requests, accepted, calls, sent, failed,
                               dead_lettered, unsure, suppressed, cancelled, expired, retried, throttled, requeued,
                               resolved)
SELECT '-infinity', 0, mode, channel, provider, took, sum(requests), sum(accepted), sum(calls), sum(sent),
       sum(failed), sum(dead_lettered), sum(unsure), sum(suppressed), sum(cancelled), sum(expired), sum(retried),
       sum(throttled), sum(requeued), sum(resolved)
FROM gone
GROUP BY mode, channel, provider, took
ORDER BY mode, channel, provider, took
ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
SET requests = m.requests + excluded.requests, accepted = m.accepted + excluded.accepted,
    calls = m.calls + excluded.calls, sent = m.sent + excluded.sent, failed = m.failed + excluded.failed,
    dead_lettered = m.dead_lettered + excluded.dead_lettered, unsure = m.unsure + excluded.unsure,
    suppressed = m.suppressed + excluded.suppressed, cancelled = m.cancelled + excluded.cancelled,
    expired = m.expired + excluded.expired, retried = m.retried + excluded.retried,
    throttled = m.throttled + excluded.throttled, requeued = m.requeued + excluded.requeued,
    resolved = m.resolved + excluded.resolved

-- name: select_minutes
-- Pages: what happened minute by minute, in the running minute and the `minutes` before it. Minutes without anything
-- have no row.
SELECT (extract(epoch FROM date_trunc('minute', now()) - minute) / 60)::int AS ago, mode, channel,
       sum(requests)::bigint, sum(accepted)::bigint, sum(calls)::bigint, sum(sent)::bigint, sum(failed)::bigint,
       sum(dead_lettered)::bigint, sum(unsure)::bigint, sum(suppressed)::bigint, sum(cancelled)::bigint,
       sum(expired)::bigint, sum(retried)::bigint, sum(throttled)::bigint, sum(requeued)::bigint,
       sum(resolved)::bigint
FROM minute_count
WHERE minute >= date_trunc('minute', now()) - %(minutes)s * interval '1 minute'
GROUP BY 1, mode, channel

-- name: select_took
-- Pages: how many took how long, by ten minutes for a sparkline's worth of percentiles (`span` minutes each).
SELECT (extract(epoch FROM date_trunc('minute', now()) - minute) / 60)::int / %(span)s AS ago, mode, channel, took,
       sum(sent)::bigint
FROM minute_count
WHERE minute >= date_trunc('minute', now()) - %(minutes)s * interval '1 minute' AND took > 0
GROUP BY 1, mode, channel, took

-- name: select_count_totals
-- Metrics: everything since the beginning; never falls.
SELECT mode, channel, provider, took, sum(requests)::bigint, sum(accepted)::bigint, sum(calls)::bigint,
       sum(sent)::bigint, sum(failed)::bigint, sum(dead_lettered)::bigint, sum(unsure)::bigint,
       sum(suppressed)::bigint, sum(cancelled)::bigint, sum(expired)::bigint, sum(retried)::bigint,
       sum(throttled)::bigint, sum(requeued)::bigint, sum(resolved)::bigint
FROM minute_count
GROUP BY mode, channel, provider, took
ORDER BY mode, channel, provider, took
