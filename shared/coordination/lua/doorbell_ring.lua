-- Tell subscribers which panels changed, at most once per interval in the whole fleet; what comes in between is
-- kept for the next ring. KEYS: changed, quiet. ARGV: channel, interval ms, then panels (none: only the next ring).
-- Returns 0, or the ms to wait before ringing again with what is kept.
if #ARGV > 2 then
  redis.call('SADD', KEYS[1], unpack(ARGV, 3))
  redis.call('PEXPIRE', KEYS[1], 3600 * 1000)
end
local panels = redis.call('SMEMBERS', KEYS[1])
if #panels == 0 then return 0 end
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then
  return math.max(1, redis.call('PTTL', KEYS[2]))
end
redis.call('DEL', KEYS[1])
table.sort(panels)
redis.call('PUBLISH', ARGV[1], table.concat(panels, ' '))
return 0
