--- Checks of arguments: each returns the value in the requested type, or raises with the caller, the argument's name
--- and the actual value. The error points at the script's line.
local raise = require "accel.util.raise"

local M = {}

--- A value as a message shows it: numbers and booleans as they are, strings quoted, anything else by type.
---@param value any
function M.shown(value)
  local kind = type(value)
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  if kind == "string" then return ("'%s'"):format(value) end
  local meta = debug.getmetatable(value)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(name) ~= "string" then name = kind end
  if name == "accel.Tensor" then -- a released one has no shape
    local ok, text = pcall(function() return ("a tensor of shape %s and dtype %s"):format(value.shape, value.dtype) end)
    if ok then return text end
  end
  return (name:find "^[AEIOaeio]" and "an " or "a ") .. name
end

--- Raises if a method lacks its object, because it was called with a dot, as in Python.
---@param name string the object's name in the message: "m"
---@param method string
function M.object(self, name, method)
  if type(self) ~= "table" then raise("%s: use %s:%s(), with a colon", method, name, method) end
end

--- Raises for more arguments than a function takes: Lua would drop them, and a misplaced option with them. Call it with the `...`
--- after the function's parameters.
---@param who string "Optimizer:step"
---@param ... any
function M.surplus(who, ...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value ~= nil then raise("%s: unexpected argument, %s; give options in one table at the end", who, M.shown(value)) end
  end
end

--- Raises the message of a failed call whose results, nil and a message, are passed on: m:load_state_dict(accel.load(path)).
---@param who string "load_state_dict"
---@param value any
---@param message any
function M.result(who, value, message)
  if value == nil and type(message) == "string" then raise("%s: %s", who, message) end
end

local function integer(value) return type(value) == "number" and math.tointeger(value) or nil end

--- A number of things: 1, 2, ... (2.0 counts as 2).
---@param who string "Linear"
---@param name string "out_features"
---@param value any
---@return integer
function M.positive(who, name, value)
  local n = integer(value)
  if not n or n < 1 then raise("%s: %s must be a positive integer, got %s", who, name, M.shown(value)) end
  return n
end

--- A number of things that may be none: 0, 1, 2, ...
---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
---@return integer
function M.count(who, name, value)
  local n = integer(value)
  if not n or n < 0 then raise("%s: %s must be an integer from 0 on, got %s", who, name, M.shown(value)) end
  return n
end

---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
---@param low? integer
---@param high? integer
---@return integer
function M.integer(who, name, value, low, high)
  local n = integer(value)
  if not n or (low and n < low) or (high and n > high) then
    local range = low and high and (" in %d .. %d"):format(low, high) or low and (" of at least %d"):format(low) or ""
    raise("%s: %s must be an integer%s, got %s", who, name, range, M.shown(value))
  end
  return n
end

--- A shape of one or more dimensions, given as a size or a list of sizes. Returns a new list.
---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
---@return integer[]
function M.sizes(who, name, value)
  if type(value) ~= "table" then
    local n = integer(value)
    if not n or n < 1 then
      raise("%s: %s must be a positive integer or a list of them, got %s", who, name, M.shown(value))
    end
    return { n }
  end
  if #value == 0 then raise("%s: %s is an empty list", who, name) end
  local sizes = {}
  for i, v in ipairs(value) do sizes[i] = M.positive(who, ("%s[%d]"):format(name, i), v) end
  return sizes
end

--- A number that is not NaN, within low .. high (either may be left out).
---@param low? number
---@param high? number
---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
---@return number
function M.number(who, name, value, low, high)
  if type(value) ~= "number" or value ~= value then
    raise("%s: %s must be a number, got %s", who, name, M.shown(value))
  end
  if (low and value < low) or (high and value > high) then
    local range = low and high and ("lie in %g .. %g"):format(low, high)
      or low and ("be at least %g"):format(low) or ("be at most %g"):format(high)
    raise("%s: %s must %s, got %s", who, name, range, M.shown(value))
  end
  return value
end

--- A function, or a value that can be called like one.
---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
function M.callable(who, name, value)
  local meta = type(value) ~= "function" and debug.getmetatable(value)
  if type(value) ~= "function" and not (type(meta) == "table" and meta.__call and meta.__name ~= "accel.Tensor") then
    raise("%s: %s must be a function, got %s", who, name, M.shown(value))
  end
  return value
end

--- One of the listed words.
---@param words string[]
---@param who string who asks, for the message
---@param name string name of the argument
---@param value any
---@return string
function M.word(who, name, value, words)
  for _, word in ipairs(words) do
    if value == word then return word end
  end
  raise("%s: %s must be one of %s, got %s", who, name, table.concat(words, ", "), M.shown(value))
end

return M
