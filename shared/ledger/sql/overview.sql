-- What the Overview shows, from the batches alone: the small table. `delivery` is never counted.

-- name: select_open_work
-- Pages, once per snapshot: what is owed by channel and lane, and the sends that owe most, those that may go first.
-- A send's page: of that send alone (`only`).
-- Batches are summed by send before anything is joined: forty thousand of one send are one row of the join. The sends
-- are ordered by two columns before those that are told are made into objects: ten thousand single sends may be open.
-- A free batch that is due counts whole, though some of its rows may wait for a later time: it does not tell.
WITH open AS MATERIALIZED (
    SELECT send_id, channel,
           sum(owed + retrying + sending + proving)::bigint AS owed,
           sum(CASE WHEN holder IS NOT NULL THEN owed WHEN due_at <= now() THEN owed + retrying ELSE 0 END)::bigint AS due,
           sum(CASE WHEN holder IS NOT NULL THEN retrying WHEN due_at > now() THEN owed + retrying ELSE 0 END)::bigint
               AS later,
           sum(sending)::bigint AS in_hand, sum(proving)::bigint AS proving,
           min(due_at) FILTER (WHERE holder IS NULL AND due_at <= now()) AS due_since,
           min(due_at) FILTER (WHERE holder IS NULL AND due_at > now()) AS next_at,
           max(due_at) FILTER (WHERE holder IS NULL AND due_at > now()) AS last_at,
           coalesce(sum(owed + retrying)
                    FILTER (WHERE holder IS NULL AND due_at > now() AND due_at <= now() + interval '1 hour'), 0)::bigint
               AS next_hour,
           count(holder)::int AS held, max(progress_at) AS progress_at
    FROM batch
    WHERE settled_at IS NULL AND (%(only)s::uuid IS NULL OR send_id = %(only)s)
    GROUP BY send_id, channel
), work AS (
    SELECT o.*, s.mode, s.lane, s.status, s.send_at, s.tenant_id, s.name, s.accepted, s.created_at, s.started_at,
           s.pause_reason, s.paused_by,
           greatest(o.due_since, s.send_at, s.started_at, s.resumed_at) AS due_for,
           CASE WHEN s.status = 'paused' THEN 'paused'
                WHEN s.status = 'scheduled' OR s.status IN ('pending', 'queued') AND s.send_at > now() THEN 'scheduled'
                WHEN s.status IN ('pending', 'queued', 'sending') THEN 'going'
                ELSE 'stopping' END AS place
    FROM open o
    JOIN send s ON s.id = o.send_id
), lanes AS (
    SELECT mode, channel, lane, sum(owed)::bigint AS owed,
           coalesce(sum(due) FILTER (WHERE place = 'going'), 0)::bigint AS due,
           coalesce(sum(later) FILTER (WHERE place = 'going'), 0)::bigint AS later,
           coalesce(sum(due + later) FILTER (WHERE place = 'paused'), 0)::bigint AS paused,
           coalesce(sum(due + later) FILTER (WHERE place = 'scheduled'), 0)::bigint AS scheduled,
           (coalesce(sum(due + later) FILTER (WHERE place = 'scheduled' AND send_at <= now() + interval '1 hour'), 0)
            + coalesce(sum(next_hour) FILTER (WHERE place = 'going'), 0))::bigint AS next_hour,
           sum(in_hand)::bigint AS in_hand, sum(proving)::bigint AS proving,
           min(due_for) FILTER (WHERE place = 'going' AND due > 0) AS oldest_due_at,
           (count(*) FILTER (WHERE place = 'going' AND due + in_hand > 0))::int AS sends_going
    FROM work
    GROUP BY mode, channel, lane
), sends AS (
    SELECT send_id, place, sum(owed) AS owed FROM work WHERE place <> 'stopping' GROUP BY send_id, place
), first AS (
    SELECT send_id, tenant_id, name, mode, lane, status, place, accepted, send_at, created_at, started_at, pause_reason,
           paused_by,
           sum(owed) AS owed,
           jsonb_object_agg(channel, jsonb_build_object(
               'owed', owed, 'due', due, 'later', later, 'in_hand', in_hand, 'proving', proving, 'due_for', due_for,
               'next_at', next_at, 'last_at', last_at, 'held', held, 'progress_at', progress_at)) AS channels
    FROM work
    WHERE send_id = ANY (ARRAY(
        SELECT send_id FROM sends
        ORDER BY array_position('{going,paused,scheduled}', place), owed DESC, send_id
        LIMIT %(most)s))
    GROUP BY send_id, tenant_id, name, mode, lane, status, place, accepted, send_at, created_at, started_at, pause_reason,
             paused_by
)
SELECT (SELECT coalesce(jsonb_agg(to_jsonb(l)), '[]') FROM lanes l),
       (SELECT coalesce(jsonb_agg(to_jsonb(f) || jsonb_build_object(
            'tenant', (SELECT t.name FROM tenant t WHERE t.id = f.tenant_id),
            'running', EXISTS (SELECT 1 FROM chain c JOIN worker w ON w.id = c.holder
                               WHERE c.send_id = f.send_id AND w.lease_until > now()),
            'others_running', EXISTS (SELECT 1 FROM chain c JOIN worker w ON w.id = c.holder JOIN send o ON o.id = c.send_id
                                      WHERE c.holder IS NOT NULL AND c.send_id <> f.send_id AND f.channels ? c.channel
                                        AND o.lane = f.lane AND w.lease_until > now()))
            ORDER BY array_position('{going,paused,scheduled}', f.place), f.owed DESC, f.send_id), '[]') FROM first f),
       (SELECT count(*)::int FROM sends),
       now()

-- name: select_sums_of_sends
-- Pages: where every accepted delivery of some sends is. Those that retention removes have their written totals.
SELECT send_id, channel, jsonb_build_object(
           'waiting', sum(owed), 'sending', sum(sending), 'retrying', sum(retrying), 'proving', sum(proving),
           'sent', sum(sent), 'failed', sum(failed), 'dead_lettered', sum(dead_lettered),
           'unsure', sum(unsure - proving), 'suppressed', sum(suppressed), 'cancelled', sum(cancelled),
           'expired', sum(expired)) || (
               SELECT jsonb_build_object(
                   'discarded_failed', count(*) FILTER (WHERE f.status = 'failed'),
                   'discarded_dead_lettered', count(*) FILTER (WHERE f.status = 'dead_lettered'),
                   'discarded_unsure', count(*) FILTER (WHERE f.status = 'unsure'))
               FROM failure f
               WHERE f.send_id = batch.send_id AND f.channel = batch.channel AND f.discarded_at IS NOT NULL)
FROM batch
WHERE send_id = ANY (ARRAY(SELECT id FROM send WHERE id = ANY (%(send_ids)s::uuid[]) AND forgotten_at IS NULL))
GROUP BY send_id, channel

-- name: select_rivals
-- A send's page: how many deliveries leave until the last of `mine` has, where the sends of a channel take turns.
-- `lanes` are those of which nothing is kept back.
SELECT coalesce(sum(least(per.owed, %(mine)s::bigint)), 0)::bigint
FROM (
    SELECT b.send_id, sum(b.owed + b.retrying + b.sending) AS owed
    FROM batch b
    WHERE b.settled_at IS NULL AND b.channel = %(channel)s AND b.send_id <> %(send_id)s
    GROUP BY b.send_id
) AS per
JOIN send s ON s.id = per.send_id
WHERE s.status = 'sending' AND s.mode = %(mode)s AND s.lane = ANY (%(lanes)s)
