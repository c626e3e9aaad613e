--- The device of a loader's batches: what comes on the CPU goes to the default device, where the script's own tensors
--- are; tensors of other devices stay. It is the same whoever reads: what a data set makes in a worker is born on the
--- CPU, what it makes in the script's own state on the default device. Used by loaders, prepared ones as well where
--- they do not move batches themselves.
local accel = require "accel.core"

local is_tensor = accel.is_tensor

-- Objects with a method `to` are asked each time.
local function stays(leaf)
  if is_tensor(leaf) then return leaf.device ~= "cpu" end
  return type(leaf) ~= "table"
end

local function goes(leaf) return not stays(leaf) or nil end

--- The batch, nested as it may be, with its tensors of the CPU on the default device.
---@generic T
---@param batch T
---@return T
return function(batch)
  local device = accel.get_default_device()
  if device == "cpu" then return batch end
  local walk = require "accel.accelerator.operations.walk"
  if not walk.visit(batch, goes) then return batch end
  return walk.map(batch, function(leaf) return stays(leaf) and leaf or leaf:to(device) end)
end
