-- Close the gate for a while; a smaller later wish never opens it earlier.
-- KEYS: gate. ARGV: ms. Returns the ms it stays closed.
local closed_ms = redis.call('PTTL', KEYS[1])
if closed_ms >= tonumber(ARGV[1]) then return closed_ms end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return tonumber(ARGV[1])
