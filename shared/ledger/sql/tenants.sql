-- name: insert_tenant
-- Create a tenant; nothing is returned when the name is taken. Callers: `tidings tenant create`, load-test bind.
INSERT INTO tenant (name, default_region, email_from, sms_from)
VALUES (%(name)s, %(default_region)s, %(email_from)s, %(sms_from)s)
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- name: select_tenants
-- Every tenant, oldest first. Caller: `tidings tenant list`.
SELECT id, name, default_region, email_from, sms_from, created_at FROM tenant ORDER BY id;

-- name: select_tenant_by_name
-- One tenant. Callers: the command line, load-test bind.
SELECT id, name, default_region, email_from, sms_from, created_at FROM tenant WHERE name = %(name)s;

-- name: insert_api_key
-- Keep a new key's hash. A tenant is missing only for a load-test credential that is not bound yet.
INSERT INTO api_key (tenant_id, name, mode, prefix, hash)
VALUES (%(tenant_id)s, %(name)s, %(mode)s, %(prefix)s, %(hash)s)
RETURNING id;

-- name: select_api_keys
-- The keys of a tenant, oldest first, revoked ones included.
SELECT id, name, mode, prefix, created_at, last_used_at, revoked_at
FROM api_key
WHERE tenant_id = %(tenant_id)s
ORDER BY id;

-- name: revoke_api_key
-- Revoke a key; the guard keeps the time of the first revocation.
UPDATE api_key SET revoked_at = now()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id;

-- name: select_caller
-- Who holds this key: one look-up by the hash's unique index, on every request of the API.
SELECT api_key.id, api_key.tenant_id, api_key.mode, api_key.revoked_at, tenant.name, tenant.default_region,
       tenant.email_from, tenant.sms_from,
       coalesce(api_key.last_used_at < now() - interval '1 minute', true) AS stale
FROM api_key LEFT JOIN tenant ON tenant.id = api_key.tenant_id
WHERE api_key.hash = %(hash)s;

-- name: touch_api_key
-- Note the use of a key, at most once a minute however many requests race.
UPDATE api_key SET last_used_at = now()
WHERE id = %(id)s AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');

-- name: bind_api_key
-- Bind a key to a tenant; the guard lets it be bound once, and again only to the same tenant.
UPDATE api_key SET tenant_id = %(tenant_id)s
WHERE id = %(id)s AND (tenant_id IS NULL OR tenant_id = %(tenant_id)s)
RETURNING id;

-- name: own_api_key
-- The key that sends of our own making are handed in under, e-mail digests among them. It is revoked from the start:
-- nobody can use it. Made when it is first needed; two at once make one.
WITH made AS (
    INSERT INTO api_key (tenant_id, name, mode, prefix, hash, revoked_at)
    VALUES (%(tenant_id)s, 'tidings', 'live', 'tid_live_', sha256(('tidings itself for tenant ' || %(tenant_id)s::bigint)::bytea), now())
    ON CONFLICT (hash) DO NOTHING
    RETURNING id
)
SELECT id FROM made
UNION ALL
SELECT id FROM api_key WHERE hash = sha256(('tidings itself for tenant ' || %(tenant_id)s::bigint)::bytea)
LIMIT 1
