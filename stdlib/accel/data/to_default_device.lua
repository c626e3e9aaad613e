--- The device of a loader's batches: CPU tensors go to the default device, the device of the script's own tensors.
--- Tensors of other devices stay. The result does not depend on the reader: a data set's tensors are created on the CPU
--- in a worker, and on the default device in the script's own state. Used by loaders, and by prepared ones that do not
--- move batches themselves.
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
  local walk = require "accel.util.walk"
  if not walk.visit(batch, goes) then return batch end
  return walk.map(batch, function(leaf) return stays(leaf) and leaf or leaf:to(device) end)
end
