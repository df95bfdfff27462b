-- name: share_tenant_events
-- Whoever hands events in, in any number: a change of a channel waits for them (`wait_for_events`).
-- Guard: taken before `store_events`, and held to the end of the transaction.
SELECT pg_advisory_xact_lock_shared(hashtextextended('tidings events', %(tenant_id)s))

-- name: wait_for_events
-- A channel's filter changes: events that are being handed in are in sight from here on, and others wait.
-- Guard: as above.
SELECT pg_advisory_xact_lock(hashtextextended('tidings events', %(tenant_id)s))

-- name: store_events
-- Events handed in, each told once by its dedup key. They are received now and not when their transaction began: one
-- that waited for a change of a channel comes after it. One that is known already changes only where it is more severe
-- now: channels that did not want to hear of it look at it again. In order of their keys, so that two requests with
-- the same ones wait for each other instead of locking each other out. `severities` is their order.
INSERT INTO event AS e (tenant_id, dedup_key, kind, subject, severity, details, finding_key, received_at)
SELECT %(tenant_id)s, given.dedup_key, given.kind, given.subject, given.severity, given.details::jsonb, given.finding_key,
       statement_timestamp()
FROM unnest(%(dedup_keys)s::text[], %(kinds)s::text[], %(subjects)s::text[], %(given_severities)s::text[],
            %(details)s::text[], %(finding_keys)s::text[])
     AS given (dedup_key, kind, subject, severity, details, finding_key)
ORDER BY given.dedup_key
ON CONFLICT (tenant_id, dedup_key) DO UPDATE
SET kind = excluded.kind, subject = excluded.subject, severity = excluded.severity, details = excluded.details,
    finding_key = excluded.finding_key, received_at = excluded.received_at
WHERE array_position(%(severities)s::text[], excluded.severity) > array_position(%(severities)s::text[], e.severity)
RETURNING e.dedup_key, (e.xmax = 0) AS is_new

-- name: put_findings
-- Findings as they are now. `changed_at` moves when one becomes something that a channel may not have heard: active
-- again, more severe, of another kind, or with another dedup key. What is the same is not written.
INSERT INTO finding AS f (tenant_id, key, source, dedup_key, kind, subject, severity, details, active, inactive_at)
SELECT %(tenant_id)s, given.key, given.source, given.dedup_key, given.kind, given.subject, given.severity,
       given.details::jsonb, given.active, CASE WHEN NOT given.active THEN now() END
FROM unnest(%(keys)s::text[], %(sources)s::text[], %(dedup_keys)s::text[], %(kinds)s::text[], %(subjects)s::text[],
            %(given_severities)s::text[], %(details)s::text[], %(actives)s::boolean[])
     AS given (key, source, dedup_key, kind, subject, severity, details, active)
ORDER BY given.key
ON CONFLICT (tenant_id, key) DO UPDATE
SET source = excluded.source, dedup_key = excluded.dedup_key, kind = excluded.kind, subject = excluded.subject,
    severity = excluded.severity, details = excluded.details, active = excluded.active,
    inactive_at = CASE WHEN NOT excluded.active THEN coalesce(f.inactive_at, now()) END,
    changed_at = CASE
        WHEN excluded.active AND (
            NOT f.active OR f.dedup_key <> excluded.dedup_key OR f.kind <> excluded.kind
            OR array_position(%(severities)s::text[], excluded.severity) > array_position(%(severities)s::text[], f.severity)
        ) THEN now() ELSE f.changed_at END
WHERE (f.source, f.dedup_key, f.kind, f.subject, f.severity, f.active) <>
      (excluded.source, excluded.dedup_key, excluded.kind, excluded.subject, excluded.severity, excluded.active)
   OR f.details IS DISTINCT FROM excluded.details
RETURNING f.key

-- name: share_tenant_findings
-- Whoever puts findings, in any number: they lock rows in the order of their keys. A replacement of a set does not.
-- Guard: taken before any row, and held to the end of the transaction.
SELECT pg_advisory_xact_lock_shared(hashtextextended('tidings findings', %(tenant_id)s))

-- name: lock_tenant_findings
-- A source's set is replaced: it makes rows active, or makes them, and then ends others, in no order that is common to
-- it and whoever else puts or replaces findings. So it waits for those, and they for it.
-- Guard: as above.
SELECT pg_advisory_xact_lock(hashtextextended('tidings findings', %(tenant_id)s))

-- name: end_other_findings
-- A source has told its whole set: what it does not name any more is not so any more.
UPDATE finding SET active = false, inactive_at = now()
WHERE tenant_id = %(tenant_id)s AND source = %(source)s AND active AND key <> ALL (%(keys)s::text[])
RETURNING key

-- name: select_finding
-- One finding. Guard: it is this tenant's.
SELECT key, source, dedup_key, kind, subject, severity, details, active, created_at, changed_at, inactive_at
FROM finding WHERE tenant_id = %(tenant_id)s AND key = %(key)s

-- name: select_findings
-- A tenant's findings by key, after a keyset cursor.
SELECT key, source, dedup_key, kind, subject, severity, details, active, created_at, changed_at, inactive_at
FROM finding
WHERE tenant_id = %(tenant_id)s AND key > %(after)s
  AND (%(source)s::text IS NULL OR source = %(source)s) AND (%(active)s::boolean IS NULL OR active = %(active)s)
ORDER BY key LIMIT %(limit)s

-- name: delete_finding
-- A finding is taken back. What was told of it stays told, and falls under retention.
DELETE FROM finding WHERE tenant_id = %(tenant_id)s AND key = %(key)s
RETURNING key, source, dedup_key, kind, subject, severity, details, active, created_at, changed_at, inactive_at
