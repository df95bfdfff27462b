-- Our configuration is wrong: let nothing through until the recheck. Uses: circuit, circuit_results.
-- KEYS: circuit, failures. ARGV: reason, code, recheck ms, epoch the call was admitted in ('' = not a call),
-- probe token ('' = none).
-- Returns the state afterwards. A call admitted before the last change, or a probe taken over, says nothing.
local now = now_ms()
local f = redis.call('HMGET', KEYS[1], 'epoch', 'probe_token')
local stale = ARGV[4] ~= '' and (f[1] or '0') ~= ARGV[4]
if ARGV[5] ~= '' then stale = f[2] ~= ARGV[5] end
if not stale then
  redis.call('HSET', KEYS[1], 'isolated_at', now, 'isolated_reason', ARGV[1], 'isolated_code', ARGV[2],
    'recheck_at', now + tonumber(ARGV[3]))
  redis.call('HDEL', KEYS[1], 'probe_token', 'probe_until')
  redis.call('DEL', KEYS[2])
  circuit_next_epoch(KEYS[1], now)
  circuit_keep(KEYS[1])
end
return circuit_state(KEYS[1], now)
