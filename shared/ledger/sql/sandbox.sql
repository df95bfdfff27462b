-- name: keep_sandbox_messages
-- The sandbox provider keeps what it was given; the same message again is the same row.
INSERT INTO sandbox_message (key, channel, address, sender, reply_to, subject, text, html)
SELECT * FROM unnest(%(keys)s::uuid[], %(channels)s::text[], %(addresses)s::text[], %(senders)s::text[],
                     %(reply_tos)s::text[], %(subjects)s::text[], %(texts)s::text[], %(htmls)s::text[])
ON CONFLICT (key) DO NOTHING

-- name: trim_sandbox_messages
-- Housekeeping: the oldest beyond the count and the age go, a bounded number at a time.
DELETE FROM sandbox_message
WHERE id IN (
    SELECT id FROM sandbox_message
    WHERE received_at < now() - %(keep_hours)s * interval '1 hour'
       OR id <= (SELECT id FROM sandbox_message ORDER BY id DESC OFFSET %(keep)s LIMIT 1)
    ORDER BY id LIMIT %(limit)s
)
