-- Close the gate for a while; a smaller later wish never opens it earlier.
-- KEYS: gate, growth (what it was last closed for, kept for twice as long: while it is closed, and as long again).
-- ARGV: ms, ms to which it grows when it is closed again soon after it opened (0 = it does not grow).
-- Returns the ms it stays closed.
local wish_ms, most_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local closed_ms = redis.call('PTTL', KEYS[1])
if most_ms > 0 then
  local last_ms = tonumber(redis.call('GET', KEYS[2]) or 0)
  if last_ms > 0 and redis.call('PTTL', KEYS[2]) > last_ms then
    wish_ms = math.max(closed_ms, 1)  -- a call that was in flight when it closed
  else
    wish_ms = math.max(wish_ms, math.min(2 * last_ms, most_ms))
    redis.call('SET', KEYS[2], wish_ms, 'PX', 2 * wish_ms)
  end
end
if closed_ms >= wish_ms then return closed_ms end
redis.call('SET', KEYS[1], '1', 'PX', wish_ms)
return wish_ms
