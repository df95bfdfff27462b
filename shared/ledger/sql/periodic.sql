-- name: claim_tick
-- Several clocks may ask; one gets each tick. `slot` is the tick's number since the epoch.
INSERT INTO periodic_slot AS p (name, slot) VALUES (%(name)s, %(slot)s)
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot, claimed_at = now()
WHERE p.slot < excluded.slot
RETURNING slot
