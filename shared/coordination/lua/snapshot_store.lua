-- Keep a document, unless its builder took too long and another has begun. KEYS: document, build.
-- ARGV: token, document, its time to live in ms, ms for which it is still fresh. Returns 1 when kept.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[2], 'done', 'PX', ARGV[4])
return 1
