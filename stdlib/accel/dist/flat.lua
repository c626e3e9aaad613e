--- flat(count, dtype, device): a flat tensor, uninitialised, for bytes that ranks exchange. On a CPU its memory is
--- mapped by all ranks of the machine, so that collectives work in place. On a GPU NCCL allocates it, if it can.
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
