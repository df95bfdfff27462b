-- One beat of a worker. KEYS: worker, workers. ARGV: id, JSON, ttl ms.
-- Returns the time of the beat in ms. Workers silent for the ttl leave the index.
local now = now_ms()
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[3]))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return now
