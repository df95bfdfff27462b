-- Fragment, after circuit.lua: what the results of calls do to the circuit. Stale results do nothing.

-- The one probe of the fleet ended. Neither success nor failure hands it back.
local function circuit_probe_result(key, failures_key, token, successes, failures, now)
  if redis.call('HGET', key, 'probe_token') ~= token then return end
  if failures > 0 then
    circuit_open(key, failures_key, now)
    redis.call('HINCRBY', key, 'reopened', 1)
  elseif successes > 0 then
    redis.call('HDEL', key, 'state', 'open_since', 'opened_at', 'reopened', 'probe_token', 'probe_until',
      'isolated_at', 'isolated_reason', 'isolated_code', 'recheck_at')
    redis.call('DEL', failures_key)
    circuit_next_epoch(key, now)
    circuit_keep(key)
  else
    redis.call('HDEL', key, 'probe_token', 'probe_until')
  end
end

-- Failures of calls admitted while closed. The list keeps just as many times as open the circuit.
local function circuit_failures(key, failures_key, epoch, failures, now, limit, window_ms)
  local f = redis.call('HMGET', key, 'state', 'isolated_at', 'epoch')
  if failures == 0 or f[1] or f[2] or (f[3] or '0') ~= epoch then return end
  for _ = 1, math.min(failures, limit) do redis.call('RPUSH', failures_key, now) end
  redis.call('LTRIM', failures_key, -limit, -1)
  redis.call('PEXPIRE', failures_key, window_ms)
  local full = redis.call('LLEN', failures_key) >= limit
  if full and tonumber(redis.call('LINDEX', failures_key, 0)) > now - window_ms then
    circuit_open(key, failures_key, now)
  end
end

local function circuit_state(key, now)
  local f = redis.call('HMGET', key, 'state', 'isolated_at', 'held_at', 'probe_token', 'probe_until')
  if f[3] then return 'open' end
  if not (f[1] or f[2]) then return 'closed' end
  return f[4] and tonumber(f[5]) > now and 'half-open' or 'open'
end
