--- A copy of a sample that shares no table and no tensor with it: what data sets that keep samples in memory hand out, so that a function
--- that changes its sample in place does not change the kept one. Objects of classes, and userdata other than tensors, are shared.
local class = require "accel.util.class"
local ordered = require "accel.util.ordered"
local tensors = require "accel.util.tensors"

local function copy(value, seen)
  if tensors.is_tensor(value) then
    seen[value] = seen[value] or value:clone()
    return seen[value]
  elseif type(value) ~= "table" or class.of(value) then
    return value
  elseif seen[value] then
    return seen[value]
  elseif ordered.is(value) then
    local out = ordered()
    seen[value] = out
    for key, entry in ordered.iterate(value) do out[key] = copy(entry, seen) end
    return out
  end
  local out = {}
  seen[value] = out
  for key, entry in next, value do rawset(out, key, copy(entry, seen)) end
  return setmetatable(out, debug.getmetatable(value)) -- accel.json marks lists by one
end

---@param sample any
---@return any
return function(sample) return copy(sample, {}) end
