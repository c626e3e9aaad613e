--- An option of a schedule that is one number for all parameter groups or a list with one for each.
local raise = require "accel.util.raise"

--- The value by the group's position.
---@param what string the caller, for messages
---@param name string
---@param value number|number[]
---@param groups integer how many there are
---@return fun(group: integer): number
return function(what, name, value, groups)
  if type(value) == "number" and value == value then return function() return value end end
  if type(value) ~= "table" or #value ~= groups then
    raise("%s: %s must be a number, or a list of one for each of %d parameter groups", what, name, groups)
  end
  for i, v in ipairs(value) do
    if type(v) ~= "number" or v ~= v then raise("%s: %s[%d] is not a number", what, name, i) end
  end
  return function(group)
    return value[group] or raise("%s: %s has no entry for parameter group %d", what, name, group)
  end
end
