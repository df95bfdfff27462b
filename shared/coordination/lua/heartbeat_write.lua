-- One beat of a worker. KEYS: worker, workers, queues. ARGV: id, JSON, ttl ms, then the queues it consumes.
-- Returns the time of the beat in ms. Workers silent for the ttl leave the index, queues after a week.
local now = now_ms()
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[3]))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
for i = 4, #ARGV do redis.call('ZADD', KEYS[3], now, ARGV[i]) end
if #ARGV > 3 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - 7 * 24 * 3600 * 1000)
  redis.call('PEXPIRE', KEYS[3], 7 * 24 * 3600 * 1000)
end
return now
