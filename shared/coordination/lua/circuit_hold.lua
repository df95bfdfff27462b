-- An operator holds the provider, releases it, or lets an isolation be looked at again. Uses: circuit, circuit_results.
-- KEYS: circuit. ARGV: 'hold', 'release' or 'look_again', by, reason.
-- Returns {1 if something changed, state afterwards}. Only 'release' ends a hold.
local now = now_ms()
local changed = 0
if ARGV[1] == 'hold' then
  changed = redis.call('HSETNX', KEYS[1], 'held_at', now)
  redis.call('HSET', KEYS[1], 'held_by', ARGV[2], 'held_reason', ARGV[3])
elseif ARGV[1] == 'release' then
  changed = redis.call('HDEL', KEYS[1], 'held_at', 'held_by', 'held_reason') > 0 and 1 or 0
elseif redis.call('HEXISTS', KEYS[1], 'isolated_at') == 1 then
  redis.call('HSET', KEYS[1], 'recheck_at', now)
  changed = 1
end
circuit_keep(KEYS[1])
return {changed, circuit_state(KEYS[1], now)}
