-- name: keep_sandbox_messages
-- The sandbox provider keeps what it was given; the same message again is the same row.
INSERT INTO sandbox_message (key, channel, address, sender, reply_to, subject, text, html, send_id, row_no)
SELECT * FROM unnest(%(keys)s::uuid[], %(channels)s::text[], %(addresses)s::text[], %(senders)s::text[],
                     %(reply_tos)s::text[], %(subjects)s::text[], %(texts)s::text[], %(htmls)s::text[],
                     %(sends)s::uuid[], %(rows)s::int[])
ON CONFLICT (key) DO NOTHING

-- name: find_sandbox_messages
-- Which of these keys are kept, and since when nothing was forgotten: NULL where nothing ever was.
SELECT (SELECT array_agg(key) FROM sandbox_message WHERE key = ANY (%(keys)s)),
       CASE WHEN NOT EXISTS (SELECT 1 FROM sandbox_message WHERE id = 1)
                 AND pg_sequence_last_value(pg_get_serial_sequence('sandbox_message', 'id')) IS NOT NULL
            THEN coalesce((SELECT received_at FROM sandbox_message ORDER BY id LIMIT 1), now()) END

-- name: trim_sandbox_messages
-- Housekeeping: the oldest beyond the count and the age go, a bounded number at a time.
DELETE FROM sandbox_message
WHERE id IN (
    SELECT id FROM sandbox_message
    WHERE received_at < now() - %(keep_hours)s * interval '1 hour'
       OR id <= (SELECT id FROM sandbox_message ORDER BY id DESC OFFSET %(keep)s LIMIT 1)
    ORDER BY id LIMIT %(limit)s
)
