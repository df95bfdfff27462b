-- Fragment: slots of a provider as leases. One lease per window: token and expiry in a sorted set, the number
-- of its calls in flight in a hash. Tokens of bulk windows begin with 'bulk:'.

local function slots_sweep(leases, counts, now)
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do
    redis.call('ZREM', leases, token)
    redis.call('HDEL', counts, token)
  end
  if redis.call('ZCARD', leases) ~= redis.call('HLEN', counts) then
    -- One key was lost without the other (eviction, a hand): what has no lease holds no slot.
    for _, token in ipairs(redis.call('HKEYS', counts)) do
      if not redis.call('ZSCORE', leases, token) then redis.call('HDEL', counts, token) end
    end
  end
end

local function slots_in_flight(counts)
  local all, bulk = 0, 0
  local flat = redis.call('HGETALL', counts)
  for i = 1, #flat, 2 do
    local n = tonumber(flat[i + 1])
    all = all + n
    if string.sub(flat[i], 1, 5) == 'bulk:' then bulk = bulk + n end
  end
  return all, bulk
end

local function slots_write(leases, counts, token, n, now, lease_ms)
  redis.call('ZADD', leases, now + lease_ms, token)
  redis.call('HSET', counts, token, n)
  redis.call('PEXPIRE', leases, lease_ms)
  redis.call('PEXPIRE', counts, lease_ms)
end

-- How many of `want` are free for this token: all, some or none.
local function slots_free(leases, counts, token, want, cap, reserved, now)
  slots_sweep(leases, counts, now)
  local all, bulk = slots_in_flight(counts)
  local free = cap - all
  if string.sub(token, 1, 5) == 'bulk:' then free = math.min(free, cap - reserved - bulk) end
  return math.max(0, math.min(want, free))
end

-- Gives back n of a token's slots; a lease that is over gives nothing back twice. Returns what it still holds.
local function slots_give_back(leases, counts, token, n)
  local held = tonumber(redis.call('HGET', counts, token) or '0')
  local left = math.max(0, held - n)
  if left > 0 then
    redis.call('HSET', counts, token, left)
  else
    redis.call('ZREM', leases, token)
    redis.call('HDEL', counts, token)
  end
  return left
end

-- Renews a lease; one that was lost (expired, or Redis emptied) is written again with the calls it still has in
-- flight, even over the cap: better counted than forgotten. Returns 1 if it was still held.
local function slots_renew(leases, counts, token, n, now, lease_ms)
  local held = redis.call('HGET', counts, token)
  slots_write(leases, counts, token, held or n, now, lease_ms)
  return held and 1 or 0
end
