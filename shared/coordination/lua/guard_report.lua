-- Calls of a window ended: give their slots back and tell the circuit. Uses: circuit, circuit_results, slots.
-- KEYS: circuit, failures, leases, counts.
-- ARGV: token, epoch, probe (1 or 0), ended, successes, failures, limit, window ms.
-- Returns the circuit's state afterwards.
local now = now_ms()
slots_give_back(KEYS[3], KEYS[4], ARGV[1], tonumber(ARGV[4]))
if ARGV[3] == '1' then
  circuit_probe_result(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]), now)
else
  circuit_failures(KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[6]), now, tonumber(ARGV[7]), tonumber(ARGV[8]))
end
return circuit_state(KEYS[1], now)
