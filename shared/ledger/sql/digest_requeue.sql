-- name: judge_dead_letters
-- Preview and freezing of an operation on notifications, as `judge_failures` is for deliveries: with an operation its
-- items are stored, without it nothing is. What died after `as_of` is never in the set, and what was discarded only where
-- a person names it to be requeued.
WITH candidate AS (
    SELECT n.id, n.kind, n.status, n.final_at, n.discarded_at, c.name AS channel, t.name AS tenant
    FROM notification n
    JOIN digest_channel c ON c.id = n.channel_id
    JOIN tenant t ON t.id = c.tenant_id
    WHERE (CASE WHEN %(ids)s::bigint[] IS NULL THEN n.status = 'dead_lettered' ELSE n.id = ANY (%(ids)s::bigint[]) END)
      AND (%(channel)s::text IS NULL OR c.name = %(channel)s)
      AND (%(tenant)s::text IS NULL OR t.name = %(tenant)s)
      AND (%(kind)s::text IS NULL OR n.kind = %(kind)s)
), verdict AS MATERIALIZED (
    SELECT c.id, c.kind, c.channel, c.tenant, c.final_at,
           CASE
               WHEN c.status <> 'dead_lettered' THEN 'state'
               WHEN c.final_at > %(as_of)s THEN 'late'
               WHEN c.discarded_at IS NOT NULL AND (%(deed)s <> 'requeue' OR %(ids)s::bigint[] IS NULL) THEN 'discarded'
               WHEN EXISTS (SELECT 1 FROM operation o
                            JOIN operation_notification i ON i.operation_id = o.id AND i.notification_id = c.id
                                                         AND i.result IS NULL
                            WHERE o.status IN ('scheduled', 'running') AND o.id IS DISTINCT FROM %(operation)s::uuid)
                    THEN 'taken'
           END AS left_out
    FROM candidate c
), placed AS (
    INSERT INTO operation_notification (operation_id, notification_id)
    SELECT %(operation)s::uuid, id FROM verdict
    WHERE left_out IS NULL AND %(operation)s::uuid IS NOT NULL
    ORDER BY id
)
SELECT tenant, channel, kind, left_out, count(*)::int, min(final_at)
FROM verdict GROUP BY 1, 2, 3, 4
ORDER BY left_out NULLS FIRST, tenant, channel, kind

-- name: requeue_dead_letters
-- A chunk of an operation: its dead letters are to be told again, with all attempts. Guard: still the dead letters that
-- were frozen, so whoever was told again and died since is left. `last_error` stays until there is another. Rows are
-- found by key, then by place, whatever the planner believes of a set that was frozen a moment ago.
WITH item AS MATERIALIZED (
    SELECT i.ctid AS item_place, i.notification_id AS id, o.as_of
    FROM operation_notification i
    JOIN operation o ON o.id = i.operation_id
    WHERE i.operation_id = %(operation)s AND i.result IS NULL
    ORDER BY i.notification_id LIMIT %(limit)s
), state AS MATERIALIZED (
    SELECT i.item_place, i.id, i.as_of, n.place
    FROM item i
    LEFT JOIN LATERAL (SELECT ctid AS place FROM notification WHERE notification.id = i.id OFFSET 0) AS n ON true
), requeued AS (
    UPDATE notification n
    SET status = 'pending', attempt_count = 0, owed_since = now(), next_attempt_at = now(), final_at = NULL,
        dispatch_batch_id = NULL, discarded_at = NULL
    FROM state s
    WHERE n.ctid = s.place AND n.status = 'dead_lettered' AND n.final_at <= s.as_of
    RETURNING n.id
), marked AS (
    UPDATE operation_notification o
    SET result = CASE WHEN r.id IS NULL THEN 'skipped' ELSE 'done' END, why = CASE WHEN r.id IS NULL THEN 'state' END
    FROM state s
    LEFT JOIN requeued r ON r.id = s.id
    WHERE o.ctid = s.item_place AND o.result IS NULL
    RETURNING o.result
)
SELECT count(*) FILTER (WHERE result = 'done')::int, count(*) FILTER (WHERE result = 'skipped')::int FROM marked

-- name: discard_dead_letters
-- A chunk of an operation: its dead letters are given up for good, and stay what they are. Guard: as above, and not
-- discarded yet.
WITH item AS MATERIALIZED (
    SELECT i.ctid AS item_place, i.notification_id AS id, o.as_of
    FROM operation_notification i
    JOIN operation o ON o.id = i.operation_id
    WHERE i.operation_id = %(operation)s AND i.result IS NULL
    ORDER BY i.notification_id LIMIT %(limit)s
), state AS MATERIALIZED (
    SELECT i.item_place, i.id, i.as_of, n.place
    FROM item i
    LEFT JOIN LATERAL (SELECT ctid AS place FROM notification WHERE notification.id = i.id OFFSET 0) AS n ON true
), changed AS (
    UPDATE notification n
    SET discarded_at = now()
    FROM state s
    WHERE n.ctid = s.place AND n.status = 'dead_lettered' AND n.final_at <= s.as_of AND n.discarded_at IS NULL
    RETURNING n.id
), marked AS (
    UPDATE operation_notification o
    SET result = CASE WHEN r.id IS NULL THEN 'skipped' ELSE 'done' END, why = CASE WHEN r.id IS NULL THEN 'state' END
    FROM state s
    LEFT JOIN changed r ON r.id = s.id
    WHERE o.ctid = s.item_place AND o.result IS NULL
    RETURNING o.result
)
SELECT count(*) FILTER (WHERE result = 'done')::int, count(*) FILTER (WHERE result = 'skipped')::int FROM marked
