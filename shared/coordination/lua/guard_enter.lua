-- Ask for one window: gate, circuit and slots in one round trip. Uses: circuit, slots.
-- KEYS: gate, circuit, leases, counts.
-- ARGV: token, want, cap (0 = none), reserved, slot lease ms, open ms, probe lease ms.
-- Returns {verdict, ms to wait, calls allowed, epoch, state}. Verdicts: in, probe, gate, hold, isolated, circuit,
-- cap. A probe that finds no slot is not taken.
local now = now_ms()
local token, want, cap = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local verdict, wait, epoch, state = circuit_look(KEYS[2], now, tonumber(ARGV[6]))
local gate_ms = redis.call('PTTL', KEYS[1])
if gate_ms > 0 and verdict ~= 'hold' then return {'gate', gate_ms, 0, epoch, state} end
if verdict ~= 'in' and verdict ~= 'probe' then return {verdict, wait, 0, epoch, state} end
if verdict == 'probe' then want = 1 end
if cap > 0 then
  want = slots_free(KEYS[3], KEYS[4], token, want, cap, tonumber(ARGV[4]), now)
  if want == 0 then return {'cap', 0, 0, epoch, state} end
  slots_write(KEYS[3], KEYS[4], token, want, now, tonumber(ARGV[5]))
end
if verdict == 'probe' then circuit_take_probe(KEYS[2], token, now, tonumber(ARGV[7])) end
return {verdict, 0, want, epoch, state}
