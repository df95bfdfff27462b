-- name: copy_deliveries
-- A chunk of a submission's rows; invisible until the send is committed with them. COPY has no bind parameters whose
-- number could limit it, and a chunk stays below the ordinary statement time-out.
COPY delivery (send_id, row_no, channel, status, address, params, reference, segments, settled_at, last_error)
FROM STDIN;

-- name: insert_send
-- The send itself, last, in the transaction of its rows: this commit is what makes it owed.
INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, name, content, params, accepted, duplicates,
                  segments, send_at, valid_until)
VALUES (%(id)s, %(tenant_id)s, %(api_key_id)s, %(mode)s, %(lane)s, 'pending', %(name)s, %(content)s, %(params)s,
        %(accepted)s, %(duplicates)s, %(segments)s, %(send_at)s, %(valid_until)s)
RETURNING created_at;

-- name: insert_batches
-- Cut one channel of a send into batches. Rows stored as `failed` (`on_invalid: skip`) are counted by batch in
-- two arrays; a batch with nothing else is settled at once. Due now: the send's status says when "now" counts.
-- The casts matter: a small number is bound as smallint, and two of them add up to one.
WITH minute AS (
    INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, requests, accepted, failed)
    VALUES (date_trunc('minute', now()), pg_backend_pid(), %(mode)s, %(channel)s, '', 0, %(requests)s, %(rows)s,
            coalesce((SELECT sum(n) FROM unnest(%(failed_counts)s::int[]) AS n), 0))
    ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
    SET requests = m.requests + excluded.requests, accepted = m.accepted + excluded.accepted,
        failed = m.failed + excluded.failed
)
INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, due_at, settled_at, owed, failed)
SELECT %(send_id)s, %(first_batch)s::int + piece, %(channel)s, piece_first, piece_last,
       CASE WHEN bad < piece_last - piece_first + 1 THEN now() END,
       CASE WHEN bad = piece_last - piece_first + 1 THEN now() END,
       piece_last - piece_first + 1 - bad, bad
FROM generate_series(0, (%(rows)s::int - 1) / %(batch_size)s::int) AS piece
CROSS JOIN LATERAL (
    SELECT %(first_row)s::int + piece * %(batch_size)s::int AS piece_first,
           least(%(first_row)s::int + (piece + 1) * %(batch_size)s::int,
                 %(first_row)s::int + %(rows)s::int) - 1 AS piece_last
) AS bounds
LEFT JOIN unnest(%(failed_pieces)s::int[], %(failed_counts)s::int[]) AS failure (failed_piece, failed_count)
    ON failed_piece = piece
CROSS JOIN LATERAL (SELECT coalesce(failed_count, 0) AS bad) AS counted;
