-- Depth of queues in Dramatiq's layout, at one moment. Reads only.
-- KEYS: per queue four: list, messages, delayed messages, dead.
-- Returns per queue {ready, all messages, delayed, dead, oldest ready message or ''}.
local answer = {}
for i = 1, #KEYS, 4 do
  local head = redis.call('LINDEX', KEYS[i], 0)
  answer[#answer + 1] = {
    redis.call('LLEN', KEYS[i]),
    redis.call('HLEN', KEYS[i + 1]),
    redis.call('HLEN', KEYS[i + 2]),
    redis.call('ZCARD', KEYS[i + 3]),
    head and redis.call('HGET', KEYS[i + 1], head) or '',
  }
end
return answer
