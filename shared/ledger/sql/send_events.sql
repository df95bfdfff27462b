-- What happened to a send beside its own course: recoveries and drains, for people who look at its page.

-- name: insert_send_event
-- Whoever recovers something of a send, or leaves it, writes that down.
INSERT INTO send_event (send_id, kind, batch_no, deliveries, worker)
VALUES (%(send_id)s, %(kind)s, %(batch_no)s, %(deliveries)s, %(worker)s)

-- name: insert_send_events
-- The same of many sends at once: after Redis was emptied a hundred thousand messages are made anew.
INSERT INTO send_event (send_id, kind) SELECT unnest(%(send_ids)s::uuid[]), %(kind)s

-- name: select_send_events
-- The page of a send: its newest events, those of one kind, worker and minute together.
SELECT max(at), kind, worker, array_agg(batch_no ORDER BY batch_no) FILTER (WHERE batch_no IS NOT NULL),
       count(*)::int, sum(deliveries)::int
FROM (SELECT * FROM send_event WHERE send_id = %(send_id)s ORDER BY id DESC LIMIT 500) AS newest
GROUP BY kind, worker, date_trunc('minute', at)
ORDER BY 1 DESC LIMIT %(limit)s

-- name: remove_send_events
-- Retention: those of a send that is being forgotten.
DELETE FROM send_event WHERE send_id = %(send_id)s
