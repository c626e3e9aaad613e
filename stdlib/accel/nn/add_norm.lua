--- add_norm(norm, x, residual): norm(residual + x) and that sum, in one pass over both where norm is a LayerNorm or an
--- RMSNorm. Used by blocks that add a branch to their stream and normalise what they have then.
local LayerNorm = require "accel.nn.layer_norm"
local RMSNorm = require "accel.nn.rms_norm"

local fused = { [LayerNorm.forward] = true, [RMSNorm.forward] = true }

--- A norm with hooks, and a module of another kind in its place, are called with the sum alone.
---@param norm accel.nn.Module
---@param x accel.Tensor what the branch gives
---@param residual accel.Tensor the stream, of the same shape
---@return accel.Tensor y
---@return accel.Tensor sum
return function(norm, x, residual)
  if fused[norm.forward] and rawget(norm, "_hooks") == nil then return norm(x, residual) end
  local sum = residual + x
  return norm(sum), sum
end
