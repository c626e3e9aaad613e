--- data.Dataset: the base of data sets. A subclass defines len() and get(i), i from 1; it may define
--- get_batch(positions), which returns a finished batch and spares the loader one call per sample. Any
--- table with these methods serves as well.
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.data.Dataset
local Dataset = class("accel.data.Dataset")

---@return integer
function Dataset:len() -- luacheck: ignore self
  raise("%s does not define len", getmetatable(self).__name)
end

---@param i integer
function Dataset:get(i) -- luacheck: ignore
  raise("%s does not define get", getmetatable(self).__name)
end

function Dataset.__len(self) return self:len() end

--- Raises unless i is a position in this data set.
function Dataset:check_position(i)
  if math.type(i) ~= "integer" or i < 1 or i > self:len() then
    raise("%s: position %s is outside of 1 .. %d", getmetatable(self).__name, tostring(i), self:len())
  end
end

return Dataset
