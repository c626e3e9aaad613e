--- Nested state taken apart: tensors, which go to files by name, and the rest, plain data with a marker in the place of
--- each tensor. Used for the states of optimizers (stdlib/accel/ckpt/optimizer.lua), which may be nested as deep as they like.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local MARK <const> = "\0tensor"

--- The plain part of a value. Tensors are handed to `take` with their name: the keys that lead there, joined by dots.
---@param value any
---@param name string of the value itself
---@param take fun(name: string, tensor: accel.Tensor)
---@return any
function M.split(value, name, take)
  if tensors.is_tensor(value) then
    take(name, value)
    return { [MARK] = name }
  end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, x in next, value do
    if type(key) ~= "string" and math.type(key) ~= "integer" then
      raise("%s: a state has string and integer keys, found a %s", name, type(key))
    end
    out[key] = M.split(x, ("%s.%s"):format(name, key), take)
  end
  return out
end

--- The value again, with each tensor replaced by `find`'s result for its name.
---@param value any
---@param find fun(name: string): accel.Tensor
---@return any
function M.join(value, find)
  if type(value) ~= "table" then return value end
  local name = value[MARK]
  if name ~= nil then return find(name) end
  local out = {}
  for key, x in next, value do out[key] = M.join(x, find) end
  return out
end

--- The names that join will ask for, in no order.
---@param value any
---@param names? string[]
---@return string[]
function M.names(value, names)
  names = names or {}
  if type(value) ~= "table" then return names end
  if value[MARK] ~= nil then
    names[#names + 1] = value[MARK]
    return names
  end
  for _, x in next, value do M.names(x, names) end
  return names
end

return M
