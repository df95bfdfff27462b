-- Give the document, and the right to build the next one where nobody has it and the last is no longer fresh.
-- KEYS: document, build. ARGV: token, longest build in ms.
-- Returns document (or ''), 'yours' | 'building' | 'done', ms until that ends.
-- Who took the right and never heard so (Redis hung) has it when asking again under the same token.
local state = 'yours'
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local held = redis.call('GET', KEYS[2])
  if held == ARGV[1] then
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
  else
    state = held == 'done' and 'done' or 'building'
  end
end
return { redis.call('GET', KEYS[1]) or '', state, redis.call('PTTL', KEYS[2]) }
