-- name: insert_audit
-- Somebody did something; written in the transaction of the deed. A name may be two people's: the account is not.
INSERT INTO audit (operator, action, target, reason, count, result, detail, role, request_id, account)
VALUES (
  %(operator)s, %(action)s, %(target)s, %(reason)s, %(count)s, %(result)s, %(detail)s, %(role)s, %(request_id)s,
  coalesce(%(account)s::text, (SELECT subject FROM operator_session WHERE id = %(session)s::uuid))
)

-- name: select_audit
-- Entries that fit a filter, newest first, before a keyset cursor.
SELECT id, at, operator, action, target, reason, count, result, detail, role, request_id, account FROM audit
WHERE (%(before)s::bigint IS NULL OR id < %(before)s)
  AND (%(operator)s::text IS NULL OR operator = %(operator)s)
  AND (%(account)s::text IS NULL OR account = %(account)s)
  AND (%(action)s::text IS NULL OR action = %(action)s)
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
ORDER BY id DESC LIMIT %(limit)s

-- name: select_audit_words
-- The operators and actions there are to filter by, from the newest entries.
SELECT DISTINCT operator, action FROM (SELECT operator, action FROM audit ORDER BY id DESC LIMIT 20000) AS newest
