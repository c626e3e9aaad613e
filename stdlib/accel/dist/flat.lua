--- flat(count, dtype, device): a flat tensor, uninitialised, for bytes that ranks exchange: on a CPU of memory that all
--- ranks of the machine map, so that collectives work in place; on a GPU of memory that NCCL made, where it does.
local accel = require "accel"
local dist = require "accel.dist"

---@param count integer
---@param dtype string
---@param device? string default "cpu"
---@return accel.Tensor
return function(count, dtype, device)
  if device and device:find "^meta" then return accel.empty(count, { dtype = dtype, device = device }) end
  return dist.empty(count, { dtype = dtype, device = device or "cpu" })
end
