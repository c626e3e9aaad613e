--- Options of a call: one table with declared defaults. An unknown key is an error that names the nearest one, or all
--- of them if none is near.
---
---   local o = options("AdamW", given, { lr = 1e-3, betas = { 0.9, 0.999 }, maximize = false })
---
--- A default of `options.none` declares a key that may be absent and takes any type.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = { none = setmetatable({}, { __tostring = function() return "none" end }) }

--- "; there are 'a', 'b'", or the text for an empty list.
---@param declared table options with their defaults
function M.listed(declared)
  local names = {}
  for name in next, declared do names[#names + 1] = "'" .. name .. "'" end
  table.sort(names)
  return #names > 0 and "; there are " .. table.concat(names, ", ") or "; it takes none"
end

--- The given options completed with the defaults, as a new table.
---@param what string the caller, for messages
---@param given table?
---@param declared table<string, any>
---@param ... any arguments after the table: an error
---@return table
function M.check(what, given, declared, ...)
  if select("#", ...) > 0 then check.surplus(what, ...) end
  if type(declared) ~= "table" then raise("options: the declared options must be a table, got %s", check.shown(declared)) end
  local o = {}
  for key, default in next, declared do
    if default ~= M.none then o[key] = default end
  end
  if given == nil then return o end
  if type(given) ~= "table" then raise("%s: options must be a table, got %s", what, type(given)) end
  for key, value in next, given do
    local default = declared[key]
    if default == nil then
      require("accel.util.absent").refuse_option(what, key)
      local near = type(key) == "string" and require "accel.util.nearest"(key, declared)
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
