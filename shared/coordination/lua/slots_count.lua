-- Count the calls in flight. Uses: slots.
-- KEYS: leases, counts. Returns {all, of bulk windows}.
slots_sweep(KEYS[1], KEYS[2], now_ms())
return {slots_in_flight(KEYS[2])}
