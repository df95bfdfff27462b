-- Renew the leases of a process's windows, and of the probe if one of them is it. Uses: circuit, slots.
-- KEYS: circuit, leases, counts.
-- ARGV: cap (0 = no slots kept), slot lease ms, probe lease ms, then token and calls in flight, pair by pair.
-- Returns how many leases had been lost.
local now, lost = now_ms(), 0
local prober = redis.call('HGET', KEYS[1], 'probe_token')
if ARGV[1] ~= '0' then slots_sweep(KEYS[2], KEYS[3], now) end
for i = 4, #ARGV, 2 do
  if ARGV[1] ~= '0' then
    lost = lost + 1 - slots_renew(KEYS[2], KEYS[3], ARGV[i], tonumber(ARGV[i + 1]), now, tonumber(ARGV[2]))
  end
  if prober == ARGV[i] then circuit_take_probe(KEYS[1], prober, now, tonumber(ARGV[3])) end
end
return lost
