-- name: insert_audit
-- Somebody did something; written in the transaction of the deed.
INSERT INTO audit (operator, action, target, reason, count, result, detail)
VALUES (%(operator)s, %(action)s, %(target)s, %(reason)s, %(count)s, %(result)s, %(detail)s)

-- name: select_audit
-- The newest entries, before a keyset cursor.
SELECT id, at, operator, action, target, reason, count, result, detail FROM audit
WHERE %(before)s::bigint IS NULL OR id < %(before)s
ORDER BY id DESC LIMIT %(limit)s
