-- Renew a lock that is still ours. KEYS: lock. ARGV: token, lease ms.
-- Returns 1, or 0 where it lapsed (somebody may have held it since) or is another's. Never takes it anew.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
