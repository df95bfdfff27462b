-- Give the document, and the right to build the next one where nobody has it and the last is no longer fresh.
-- KEYS: document, build. ARGV: token, longest build in ms.
-- Returns document (or ''), 'yours' | 'building' | 'done', ms until that ends.
local state = 'yours'
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  state = redis.call('GET', KEYS[2]) == 'done' and 'done' or 'building'
end
return { redis.call('GET', KEYS[1]) or '', state, redis.call('PTTL', KEYS[2]) }
