-- Messages that Redis keeps and nobody would ever fetch go back into their queue: a list or a set of fetched ids was
-- evicted, or a hand removed it. Reads the queue whole only where the numbers do not agree.
-- KEYS: list, messages, heartbeats. ARGV: the fetched sets' name up to the broker, the queue, most messages put back.
-- Returns how many were put back. A broker that is silent, or forgotten, may still run one: then it runs twice, which
-- every job allows.
local fetched = 0
local brokers = redis.call('ZRANGE', KEYS[3], 0, -1)
for _, broker in ipairs(brokers) do
  fetched = fetched + redis.call('SCARD', ARGV[1] .. broker .. '.' .. ARGV[2])
end
if redis.call('HLEN', KEYS[2]) <= redis.call('LLEN', KEYS[1]) + fetched then return 0 end
local known = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do known[id] = true end
for _, broker in ipairs(brokers) do
  for _, id in ipairs(redis.call('SMEMBERS', ARGV[1] .. broker .. '.' .. ARGV[2])) do known[id] = true end
end
local back = 0
for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not known[id] and back < tonumber(ARGV[3]) then
    redis.call('RPUSH', KEYS[1], id)
    back = back + 1
  end
end
return back
