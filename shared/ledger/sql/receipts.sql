-- Receipts: what providers report about messages they took. Kept first, applied as soon as the row's own record allows.

-- name: select_delivery_of_receipt
-- The delivery that a provider's callback names. Caller: the callback, by the id it carries.
SELECT d.send_id, d.row_no, d.epoch FROM delivery d WHERE d.send_id = %(send_id)s AND d.row_no = %(row_no)s

-- name: select_delivery_of_report
-- The delivery that a report means: the number among the rows of one request, in the epoch of that request. One that
-- was requeued since is another life of it, of which the report says nothing.
SELECT d.send_id, d.row_no, d.epoch FROM delivery d
WHERE d.send_id = %(send_id)s AND d.row_no BETWEEN %(first_row)s AND %(last_row)s AND d.channel = 'sms'
  AND d.address = %(address)s AND d.epoch = %(epoch)s
ORDER BY d.row_no LIMIT 1

-- name: keep_receipt
-- Keep a report; the same one told again is the same row, and not returned.
INSERT INTO receipt (send_id, row_no, epoch, provider, provider_ref, status, code)
SELECT %(send_id)s, %(row_no)s, %(epoch)s, %(provider)s, %(ref)s, %(status)s, %(code)s
WHERE NOT EXISTS (
    SELECT 1 FROM receipt
    WHERE send_id = %(send_id)s AND row_no = %(row_no)s AND epoch = %(epoch)s AND provider = %(provider)s
      AND provider_ref IS NOT DISTINCT FROM %(ref)s AND status = %(status)s AND code IS NOT DISTINCT FROM %(code)s
)
RETURNING id

-- name: find_waiting_receipts
-- The prover: reports not applied yet, in the order they came.
SELECT id, send_id, row_no, epoch, provider, provider_ref, status, code FROM receipt
WHERE applied_at IS NULL AND id > %(after)s
ORDER BY id LIMIT %(limit)s

-- name: select_row_of_receipt
-- What a report meets.
SELECT d.status, d.epoch, d.claim_id, d.provider, d.credential, d.channel, d.address, d.last_attempt_at, s.tenant_id
FROM delivery d JOIN send s ON s.id = d.send_id
WHERE d.send_id = %(send_id)s AND d.row_no = %(row_no)s

-- name: move_receipt_status
-- The state at the provider goes forward only, whatever the order of the reports; the delivery stays what it is, also
-- one that was given up. Guards: settled after a call, in the epoch of the report; an earlier stage is there.
UPDATE delivery
SET receipt_status = %(status)s, provider_ref = coalesce(provider_ref, %(ref)s)
WHERE send_id = %(send_id)s AND row_no = %(row_no)s AND epoch = %(epoch)s
  AND status NOT IN ('owed', 'sending', 'retrying', 'unsure') AND last_attempt_at IS NOT NULL
  AND (receipt_status IS NULL OR receipt_status = ANY (%(earlier)s::text[]))

-- name: mark_receipt_applied
-- The report has done what it can.
UPDATE receipt SET applied_at = now() WHERE id = %(id)s AND applied_at IS NULL

-- name: lock_message_of_provider
-- Two deliveries that look alike may be found to be one message at the same moment: the second waits for the first, and
-- asks then. Taken in the order of the ids, before any batch.
SELECT pg_advisory_xact_lock(hashtextextended(%(ref)s, 0))

-- name: message_is_of_another
-- Whether an id of Twilio's is known, from its reports or its answers, to be another delivery's message.
SELECT EXISTS (
    SELECT 1 FROM receipt WHERE provider_ref = %(ref)s AND (send_id, row_no) <> (%(send_id)s::uuid, %(row_no)s::int)
) OR EXISTS (
    SELECT 1 FROM attempt
    WHERE provider = 'twilio' AND provider_ref = %(ref)s AND (send_id, row_no) <> (%(send_id)s::uuid, %(row_no)s::int)
)
