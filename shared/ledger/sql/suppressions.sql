-- name: select_suppressions
-- A tenant's list by channel and address, a page at a time. Caller: `tidings suppression list`.
SELECT channel, address, reason, created_at
FROM suppression
WHERE tenant_id = %(tenant_id)s AND (channel, address) > (%(channel)s, %(address)s)
ORDER BY channel, address
LIMIT %(limit)s;

-- name: remove_suppressions
-- Take addresses off a tenant's list; those that are not on it are left out of the count.
DELETE FROM suppression
WHERE tenant_id = %(tenant_id)s AND channel = %(channel)s AND address = ANY (SELECT lower(a) FROM unnest(%(addresses)s::text[]) AS a)
RETURNING 1;
