-- name: claim_idempotency_key
-- Claim a key for one request. Returns nothing when somebody else holds it or it is answered already.
-- An old key, and one whose holder died before it answered, may be taken over.
INSERT INTO idempotency_key AS held (tenant_id, key, fingerprint, owner, locked_until)
VALUES (%(tenant_id)s, %(key)s, %(fingerprint)s, %(owner)s, now() + %(lock)s)
ON CONFLICT (tenant_id, key) DO UPDATE
SET fingerprint = excluded.fingerprint, owner = excluded.owner, locked_until = excluded.locked_until,
    send_id = NULL, answer = NULL, created_at = now()
WHERE held.created_at < now() - %(ttl)s OR (held.answer IS NULL AND held.locked_until < now())
RETURNING owner;

-- name: select_idempotency_key
-- What is known of a key that could not be claimed.
SELECT fingerprint, answer FROM idempotency_key WHERE tenant_id = %(tenant_id)s AND key = %(key)s;

-- name: answer_idempotency_key
-- Keep the answer, in the transaction that stores the send. The owner is the fence: a request whose claim was
-- taken over finds no row and must store nothing.
UPDATE idempotency_key SET send_id = %(send_id)s, answer = %(answer)s
WHERE tenant_id = %(tenant_id)s AND key = %(key)s AND owner = %(owner)s AND answer IS NULL
RETURNING key;

-- name: release_idempotency_key
-- Give a key back after a request that stored nothing. An answered key stays.
DELETE FROM idempotency_key
WHERE tenant_id = %(tenant_id)s AND key = %(key)s AND owner = %(owner)s AND answer IS NULL;

-- name: forget_idempotency_keys
-- Delete some keys past their time, oldest first. Caller: housekeeping.
DELETE FROM idempotency_key
WHERE (tenant_id, key) IN (
    SELECT tenant_id, key FROM idempotency_key
    WHERE created_at < now() - %(ttl)s ORDER BY created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
