--- nn.LayerNorm(normalized_shape, {eps = 1e-5, elementwise_affine = true, bias = true}).
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"

local layer_norm, add_layer_norm = accel.layer_norm, accel.add_layer_norm

--- (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, of shape normalized_shape (a size or a
--- list). Initial values: weight 1, bias 0. norm(x, residual) gives y, sum: sum = residual + x and y = norm(sum), in
--- one pass.
--- example: accel.nn.LayerNorm(2)(accel.tensor { { 1.0, 3.0 } }) --> { { -1, 1 } }
--- example: accel.nn.LayerNorm(2)(accel.ones(1, 2), accel.tensor { { 1.0, 3.0 } }) --> { { -1, 1 } }, { { 2, 4 } }
---@class accel.nn.LayerNorm : accel.nn.Module
---@field weight accel.Tensor?
---@field bias accel.Tensor?
local LayerNorm = Module:extend("accel.nn.LayerNorm")

local parse = arguments("LayerNorm", { "normalized_shape", list = true }, { "eps", 1e-5 },
  { "elementwise_affine", true }, { "bias", true }, { "device" }, { "dtype", "f32" })

---@param normalized_shape integer|integer[]
---@param opts? {eps: number?, elementwise_affine: boolean?, bias: boolean?, dtype: string?, device: string?}
function LayerNorm:init(normalized_shape, opts, ...)
  local o = parse(normalized_shape, opts, ...)
  self.normalized_shape = check.sizes("LayerNorm", "normalized_shape", o.normalized_shape)
  self.eps, self.affine = check.number("LayerNorm", "eps", o.eps, 0), o.elementwise_affine
  local make, weight, bias = { dtype = o.dtype, device = o.device }, nil, nil
  if o.elementwise_affine then
    weight = Parameter(accel.ones(self.normalized_shape, make))
    if o.bias then bias = Parameter(accel.zeros(self.normalized_shape, make)) end
  end
  self:register_parameter("weight", weight)
  self:register_parameter("bias", bias)
  self.options = { eps = o.eps }
end

---@param x accel.Tensor
---@param residual? accel.Tensor of x's shape: normalise residual + x
---@return accel.Tensor y
---@return accel.Tensor? sum residual + x, if there is a residual
function LayerNorm:forward(x, residual)
  if residual then
    return add_layer_norm(x, residual, self.normalized_shape, self.weight, self.bias, self.options)
  end
  return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.options)
end

function LayerNorm:extra_repr()
  return ("%s, eps=%g, elementwise_affine=%s, bias=%s"):format(arguments.text(self.normalized_shape), self.eps,
    self.affine, self.bias ~= nil)
end

return LayerNorm
