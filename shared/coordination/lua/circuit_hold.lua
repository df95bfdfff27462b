-- An operator holds the provider, releases it, or lets an isolation be looked at again. Uses: circuit, circuit_results.
-- KEYS: circuit. ARGV: 'hold', 'release' or 'look_again', by, reason, id of the hold ('' = any), since ms (0 = now).
-- Returns {1 if something changed, state afterwards}. Only 'release' ends a hold, and with an id only that one.
local now = now_ms()
local changed = 0
if ARGV[1] == 'hold' then
  changed = 1 - redis.call('HEXISTS', KEYS[1], 'held_at')
  if changed == 1 or ARGV[5] ~= '0' then
    redis.call('HSET', KEYS[1], 'held_at', ARGV[5] == '0' and now or ARGV[5])
  end
  redis.call('HSET', KEYS[1], 'held_by', ARGV[2], 'held_reason', ARGV[3], 'held_id', ARGV[4])
elseif ARGV[1] == 'release' then
  if ARGV[4] == '' or redis.call('HGET', KEYS[1], 'held_id') == ARGV[4] then
    changed = redis.call('HDEL', KEYS[1], 'held_at', 'held_by', 'held_reason', 'held_id') > 0 and 1 or 0
  end
elseif redis.call('HEXISTS', KEYS[1], 'isolated_at') == 1 then
  redis.call('HSET', KEYS[1], 'recheck_at', now)
  changed = 1
end
circuit_keep(KEYS[1])
return {changed, circuit_state(KEYS[1], now)}
