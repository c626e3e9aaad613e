--- The value of --rdzv_conf: key=value,... as torchrun takes it. Ranks always meet at machine 0, regardless of the store's name, so only
--- the waiting time has an effect.
local nearest = require "accel.util.nearest"

local M = {}

--- For torch's backends c10d, static and etcd: the timeouts that take effect, and the keys without effect.
local KNOWN <const> = { join_timeout = true, timeout = true, read_timeout = false, last_call_timeout = false, close_timeout = false,
  is_host = false, store_type = false, rank = false, use_agent_store = false, keep_alive_interval = false, keep_alive_max_attempt = false,
  heartbeat_timeout = false, cas_backoff_max_seconds = false, nodes_filter = false, etcd_prefix = false, ttl = false, protocol = false,
  cert = false, key = false, cacert = false, ssl_cert = false, ssl_cert_key = false, ca_cert = false }

--- Reads it. join_timeout: seconds that ranks wait for each other, nil if it is not set (timeout is another name, with lower
--- precedence). ignored: names without effect.
---@param text string
---@return {join_timeout: number?, ignored: string[]}?
---@return string? message
function M.read(text)
  local out, given = { ignored = {} }, {}
  for part in text:gmatch "[^,]+" do
    local key, value = part:match "^%s*([^=]-)%s*=%s*(.-)%s*$"
    if not key or key == "" then return nil, ("rdzv_conf: '%s' is not key=value"):format(part) end
    if KNOWN[key] == nil then
      local near = nearest(key, KNOWN)
      return nil, ("rdzv_conf: there is no '%s'%s"):format(key, near and ("; did you mean '%s'?"):format(near) or "")
    end
    if KNOWN[key] then
      local seconds = tonumber(value)
      if not seconds or not (seconds > 0) then return nil, ("rdzv_conf: %s must be a number of seconds, got '%s'"):format(key, value) end
      given[key] = seconds
    else
      out.ignored[#out.ignored + 1] = key
    end
  end
  out.join_timeout = given.join_timeout or given.timeout
  return out
end

return M
