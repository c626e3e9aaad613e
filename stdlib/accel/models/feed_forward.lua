--- What transformers have between their attentions: second(act(first(x))), as one op where both layers are plain ones, so that the device
--- may fuse what lies between the two products.
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local Linear = require "accel.nn.linear"
local activation = require "accel.models.activation"

local mlp = accel.mlp

-- Whether calling the layer is nothing but its product: no hooks, no forward of its own, no other class in its place.
local function is_plain(layer, class)
  return getmetatable(layer) == class and not rawget(layer, "_hooks") and not rawget(layer, "forward")
end

---@param first accel.nn.Module Linear or Conv1D, or anything that is called
---@param act fun(x: accel.Tensor): accel.Tensor of accel.models.activation
---@param second accel.nn.Module
---@param x accel.Tensor [..., in]
---@return accel.Tensor [..., out]
return function(first, act, second, x)
  local class = getmetatable(first)
  local fused = activation.fused(act)
  if not fused or (class ~= Linear and class ~= Conv1D) or not is_plain(first, class) or not is_plain(second, class) then
    return second(act(first(x)))
  end
  return mlp(x, first.weight, second.weight, first.bias, second.bias, { activation = fused, transposed = class == Conv1D })
end
