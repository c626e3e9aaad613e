--- add_norm(norm, x, residual): norm(residual + x) and that sum, in one pass over both if norm is a LayerNorm or an
--- RMSNorm. Used by blocks that add a branch to their stream and normalise the sum.
local LayerNorm = require "accel.nn.layer_norm"
local RMSNorm = require "accel.nn.rms_norm"
local is_plain = require "accel.nn.is_plain"
local tensors = require "accel.util.tensors"

local of_layer, of_rms = LayerNorm.forward, RMSNorm.forward

--- Norms with hooks, and modules of another kind in their place, are called with the sum alone. The same applies to any
--- norm if the branch returns no tensor of the stream's shape but a number or a mean that a hook put there.
---@param norm accel.nn.Module
---@param x accel.Tensor|number the branch's output
---@param residual accel.Tensor the stream
---@return accel.Tensor y
---@return accel.Tensor sum
return function(norm, x, residual)
  if (is_plain(norm, of_layer) or is_plain(norm, of_rms)) and tensors.is_tensor(x) and tensors.same_shape(x, residual) then
    return norm(x, residual)
  end
  local sum = residual + x
  return norm(sum), sum
end
