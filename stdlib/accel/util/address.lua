--- Addresses of servers without their secrets: a user and a password (http://USER:PASSWORD@HOST), and keys in a query. Used by
--- trackers and everything that prints, stores or passes on an address. Messages of requests themselves have only scheme and host
--- (host/track/rest.c), since the path of a webhook is also a key.
local terminal = require "accel.util.terminal"

local M = {}

--- "%40" as "@", as in the user and the password of an address.
local function decoded(s) return (s:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)) end

--- An address without user and password, and these as "user:password". nil if it has none.
---@param url string
---@return string bare
---@return string? user
function M.split(url)
  local scheme, rest = url:match "^([%w+.-]+://)(.*)$"
  if not scheme then return url, nil end
  local authority, path = rest:match "^([^/?#\\]*)(.*)$"
  local user, host = authority:match "^(.*)@([^@]*)$"
  if not user then return url, nil end
  return scheme .. host .. path, decoded(user)
end

--- An address as messages show it: without user, password, query and control characters.
---@param url string
---@return string
function M.shown(url)
  local bare = M.split(url)
  return terminal.visible((bare:gsub("[?#].*$", "?...")))
end

return M
