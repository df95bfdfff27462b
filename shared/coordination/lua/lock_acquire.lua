-- Take a lock for one lease. KEYS: lock, fence. ARGV: token, lease ms.
-- Returns {1, fencing token} or {0, ms the holder's lease has left}.
-- The fence is the clock in microseconds, or one more than the last: it keeps growing after Redis was emptied.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {0, math.max(0, redis.call('PTTL', KEYS[1]))}
end
local time = redis.call('TIME')
local fence = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), tonumber(redis.call('GET', KEYS[2]) or '0') + 1)
redis.call('SET', KEYS[2], fence, 'PX', 7 * 24 * 3600 * 1000)
return {1, fence}
