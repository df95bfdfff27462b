-- name: claim_tick
-- Several clocks may ask; one gets each tick. `slot` is when the tick began, in ms since 1970.
-- A clock that is ahead gets no tick of the future: the others would have to wait until its time has come.
INSERT INTO periodic_slot AS p (name, slot)
VALUES (%(name)s, least(%(slot)s, floor(extract(epoch FROM now()) * 1000)::bigint))
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot, claimed_at = now()
WHERE p.slot < excluded.slot
RETURNING slot
