-- Release a lock that is still ours; another's is never touched. KEYS: lock. ARGV: token.
-- Returns 1 if it was released.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
