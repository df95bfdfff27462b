-- What was sent to one address. Nothing finds deliveries by it: an index would cost each of them something, and a
-- person asks seldom.

-- name: find_by_key_alone
-- For the rest of a transaction rows are found by key: of a table that was never analysed the planner would rather sort
-- all of it for each look.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)

-- name: look_for_address
-- A page: some deliveries before a cursor, the newest first. Gives those to the address, and the last one that was
-- looked at, with when its send was accepted and how many there were.
WITH looked AS MATERIALIZED (
    SELECT send_id, row_no, channel, address FROM delivery
    WHERE (send_id, row_no) < (%(before_send)s, %(before_row)s)
    ORDER BY send_id DESC, row_no DESC LIMIT %(limit)s
)
SELECT * FROM (
    SELECT send_id, row_no, true AS is_it, NULL::timestamptz AS accepted_at, NULL::int AS count
    FROM looked WHERE channel = %(channel)s AND lower(address) = lower(%(address)s)
    UNION ALL
    SELECT last.send_id, last.row_no, false, (SELECT created_at FROM send WHERE send.id = last.send_id),
           (SELECT count(*)::int FROM looked)
    FROM (SELECT send_id, row_no FROM looked ORDER BY send_id, row_no LIMIT 1) AS last
) AS found
ORDER BY send_id DESC, row_no DESC, is_it DESC

-- name: select_found_deliveries
-- The deliveries that were found, the newest first.
SELECT d.send_id, d.row_no, d.status, d.prove_at IS NOT NULL, d.epoch, d.attempt_count, d.next_attempt_at,
       coalesce(d.last_attempt_at, d.settled_at), d.provider, d.receipt_status, d.last_error, t.name, s.name, s.created_at
FROM unnest(%(send_ids)s::uuid[], %(row_nos)s::int[]) AS i (send_id, row_no)
JOIN delivery d ON d.send_id = i.send_id AND d.row_no = i.row_no
JOIN send s ON s.id = d.send_id
JOIN tenant t ON t.id = s.tenant_id
ORDER BY d.send_id DESC, d.row_no DESC
