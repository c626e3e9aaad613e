--- The feed-forward layer of transformers: second(act(first(x))), as one op if both layers are plain, so that the device can fuse the
--- work between the two products.
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local Linear = require "accel.nn.linear"
local activation = require "accel.models.activation"
local is_plain = require "accel.nn.is_plain"

local mlp = accel.mlp
local of_linear, of_conv = Linear.forward, Conv1D.forward

---@param first accel.nn.Module Linear or Conv1D, or anything that is called
---@param act fun(x: accel.Tensor): accel.Tensor of accel.models.activation
---@param second accel.nn.Module
---@param x accel.Tensor [..., in]
---@return accel.Tensor [..., out]
return function(first, act, second, x)
  local fused, transposed = activation.fused(act), is_plain(first, of_conv)
  if fused and (transposed and is_plain(second, of_conv) or is_plain(first, of_linear) and is_plain(second, of_linear)) then
    return mlp(x, first.weight, second.weight, first.bias, second.bias, { activation = fused, transposed = transposed })
  end
  return second(act(first(x)))
end
