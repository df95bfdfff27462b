-- Fragment: the rules of a provider's circuit.
-- Hash fields: state ('open' or absent), open_since, opened_at (again by each failed probe), epoch, reopened,
-- probe_token, probe_until,
-- isolated_at/_reason/_code and recheck_at (automatic), held_at/_by/_reason/_id (an operator). Times in ms of the server's clock.
local CIRCUIT_TTL_MS = 7 * 24 * 3600 * 1000

local function circuit_keep(key)
  -- A hold has no end of its own; everything else may be forgotten.
  if redis.call('HEXISTS', key, 'held_at') == 1 then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIRE', key, CIRCUIT_TTL_MS)
  end
end

-- Results that belong to another epoch are stale: each opening, closing and isolation starts a new one.
local function circuit_next_epoch(key, now)
  local last = tonumber(redis.call('HGET', key, 'epoch') or '0')
  redis.call('HSET', key, 'epoch', math.max(now, last + 1))
end

-- Returns verdict ('in', 'probe', 'hold', 'isolated' or 'circuit'), ms to wait, epoch, pybreaker's state name.
-- A hold and a probe under way may end at any moment: ask again soon (5 s, 1 s).
local function circuit_look(key, now, open_ms)
  local f = redis.call('HMGET', key, 'state', 'opened_at', 'recheck_at', 'held_at', 'probe_token', 'probe_until', 'epoch')
  local epoch = f[7] or '0'
  local probing = f[5] and tonumber(f[6]) > now
  local shut = f[1] or f[3]
  local state = 'closed'
  if shut then state = probing and 'half-open' or 'open' end
  if f[4] then return 'hold', math.min(open_ms, 5000), epoch, 'open' end
  if not shut then return 'in', 0, epoch, state end
  local opens = f[1] and tonumber(f[2]) + open_ms or 0
  local recheck = tonumber(f[3] or '0')
  local reason = recheck > opens and 'isolated' or 'circuit'
  local wait = math.max(opens, recheck) - now
  if wait > 0 then return reason, wait, epoch, state end
  if probing then return reason, math.min(tonumber(f[6]) - now, 1000), epoch, state end
  return 'probe', 0, epoch, 'half-open'
end

local function circuit_take_probe(key, token, now, lease_ms)
  redis.call('HSET', key, 'probe_token', token, 'probe_until', now + lease_ms)
  circuit_keep(key)
end

local function circuit_open(key, failures_key, now)
  redis.call('HDEL', key, 'probe_token', 'probe_until')
  -- A failed probe begins another wait of the same outage.
  if redis.call('HEXISTS', key, 'state') == 0 then
    redis.call('HSET', key, 'open_since', now)
  else
    redis.call('HSETNX', key, 'open_since', redis.call('HGET', key, 'opened_at'))
  end
  redis.call('HSET', key, 'state', 'open', 'opened_at', now)
  redis.call('DEL', failures_key)
  circuit_next_epoch(key, now)
  circuit_keep(key)
end
