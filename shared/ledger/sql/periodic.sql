-- name: claim_tick
-- Several clocks may ask; one gets each tick. `slot` is when the tick began by the clock that asks, `interval_ms` from
-- tick to tick; ms since 1970. A clock that is wrong by more than some ticks is given those of Postgres' own time, so that
-- it neither goes without nor takes them from the others. A newest tick that is far in the future was claimed before
-- Postgres' clock went back: it counts for nothing.
INSERT INTO periodic_slot AS p (name, slot)
SELECT %(name)s,
       CASE WHEN %(slot)s::bigint BETWEEN now_ms - 2 * %(interval_ms)s::bigint AND now_ms + %(interval_ms)s::bigint
            THEN %(slot)s::bigint ELSE now_ms - now_ms %% %(interval_ms)s::bigint END
FROM (SELECT floor(extract(epoch FROM now()) * 1000)::bigint AS now_ms) AS ledger
ON CONFLICT (name) DO UPDATE SET slot = excluded.slot, claimed_at = now()
WHERE p.slot < excluded.slot
   OR p.slot > floor(extract(epoch FROM now()) * 1000)::bigint + %(interval_ms)s::bigint
RETURNING slot
