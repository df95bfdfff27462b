-- name: claim_tick
-- Several clocks may ask; one gets each tick. `slot` is when the tick began, in ms since 1970.
INSERT INTO periodic_slot AS p (name, slot) VALUES (%(name)s, %(slot)s)
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot, claimed_at = now()
WHERE p.slot < excluded.slot
RETURNING slot
