-- Take all or some of the slots wanted. Uses: slots.
-- KEYS: leases, counts. ARGV: token, want, cap, reserved for single sends, lease ms.
-- Returns how many were taken, 0 to want.
local now = now_ms()
local n = slots_free(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), now)
if n > 0 then slots_write(KEYS[1], KEYS[2], ARGV[1], n, now, tonumber(ARGV[5])) end
return n
