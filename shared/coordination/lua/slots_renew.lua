-- Renew the lease of a window. Uses: slots.
-- KEYS: leases, counts. ARGV: token, calls in flight, lease ms.
-- Returns 1 if it was still held, 0 if it had been lost and was written again.
local now = now_ms()
slots_sweep(KEYS[1], KEYS[2], now)
return slots_renew(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), now, tonumber(ARGV[3]))
