--- Options of a call: one table with declared defaults, where an unknown key is an error that names the
--- nearest one, or all of them when none is near.
---
---   local o = options("AdamW", given, { lr = 1e-3, betas = { 0.9, 0.999 }, maximize = false })
---
--- A default of `options.none` declares a key that may be absent and takes any type.
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = { none = setmetatable({}, { __tostring = function() return "none" end }) }

--- "; there are 'a', 'b'", or what to say instead when there are none.
function M.listed(declared)
  local names = {}
  for name in next, declared do names[#names + 1] = "'" .. name .. "'" end
  table.sort(names)
  return #names > 0 and "; there are " .. table.concat(names, ", ") or "; it takes none"
end

--- The given options completed with the defaults, as a new table.
---@param what string who asks, for messages
---@param given table?
---@param declared table<string, any>
---@return table
function M.check(what, given, declared)
  local o = {}
  for key, default in next, declared do
    if default ~= M.none then o[key] = default end
  end
  if given == nil then return o end
  if type(given) ~= "table" then raise("%s: options must be a table, got %s", what, type(given)) end
  for key, value in next, given do
    local default = declared[key]
    if default == nil then
      local near = type(key) == "string" and nearest(key, declared)
      raise("%s: unknown option '%s'%s", what, tostring(key), near and ("; did you mean '%s'?"):format(near)
        or M.listed(declared))
    end
    if default ~= M.none and type(value) ~= type(default) then
      raise("%s: option '%s' must be a %s, got %s", what, key, type(default), type(value))
    end
    o[key] = value
  end
  return o
end

return setmetatable(M, { __call = function(_, ...) return M.check(...) end })
