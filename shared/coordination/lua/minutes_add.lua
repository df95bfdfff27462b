-- Add to the figures of the current minute. KEYS: one ring per queue.
-- ARGV: ring length in minutes, then per queue: added, done, failed.
-- Field = minute modulo length, value = 'minute added done failed'; an older round's value is written over.
-- Returns the minute (since 1970).
local minute, points = math.floor(now_ms() / 60000), tonumber(ARGV[1])
for i = 1, #KEYS do
  local sums = {}
  for k = 1, 3 do sums[k] = tonumber(ARGV[1 + (i - 1) * 3 + k]) end
  local field = minute % points
  local known = redis.call('HGET', KEYS[i], field)
  if known then
    local at, added, done, failed = string.match(known, '(%d+) (%d+) (%d+) (%d+)')
    if tonumber(at) == minute then
      sums = {sums[1] + tonumber(added), sums[2] + tonumber(done), sums[3] + tonumber(failed)}
    end
  end
  redis.call('HSET', KEYS[i], field, string.format('%d %d %d %d', minute, sums[1], sums[2], sums[3]))
  redis.call('PEXPIRE', KEYS[i], points * 60000)
end
return minute
