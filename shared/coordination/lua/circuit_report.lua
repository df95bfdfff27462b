-- Tell what admitted calls came to. Uses: circuit, circuit_results.
-- KEYS: circuit, failures. ARGV: token, epoch, probe (1 or 0), successes, failures, limit, window ms.
-- Returns the state afterwards.
local now = now_ms()
if ARGV[3] == '1' then
  circuit_probe_result(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), now)
else
  circuit_failures(KEYS[1], KEYS[2], ARGV[2], tonumber(ARGV[5]), now, tonumber(ARGV[6]), tonumber(ARGV[7]))
end
return circuit_state(KEYS[1], now)
