-- Ask to make calls. Uses: circuit.
-- KEYS: circuit. ARGV: token, open ms, probe lease ms.
-- Returns {verdict, ms to wait, epoch, state}; verdict 'in' or 'probe' (exactly one call) admits.
local now = now_ms()
local verdict, wait, epoch, state = circuit_look(KEYS[1], now, tonumber(ARGV[2]))
if verdict == 'probe' then circuit_take_probe(KEYS[1], ARGV[1], now, tonumber(ARGV[3])) end
return {verdict, wait, epoch, state}
