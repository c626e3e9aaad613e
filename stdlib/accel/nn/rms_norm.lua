--- nn.RMSNorm(normalized_shape, {eps=, elementwise_affine = true}).
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"

local rms_norm, add_rms_norm = accel.rms_norm, accel.add_rms_norm

--- x / sqrt(mean(x^2) + eps) * weight over the last dimensions, of shape normalized_shape. Without eps the
--- smallest step of the dtype is used, as in PyTorch. Initial value: weight 1. norm(x, residual) gives y, sum: sum =
--- residual + x and y = norm(sum), in one pass.
--- example: accel.nn.RMSNorm(2)(accel.tensor { { 3.0, 3.0 } }) --> { { 1, 1 } }
--- example: accel.nn.RMSNorm(2)(accel.ones(1, 2), accel.tensor { { 2.0, 2.0 } }) --> { { 1, 1 } }, { { 3, 3 } }
---@class accel.nn.RMSNorm : accel.nn.Module
---@field weight accel.Tensor?
local RMSNorm = Module:extend("accel.nn.RMSNorm")

local parse = arguments("RMSNorm", { "normalized_shape", list = true }, { "eps" },
  { "elementwise_affine", true }, { "device" }, { "dtype", "f32" })

---@param normalized_shape integer|integer[]
---@param opts? {eps: number?, elementwise_affine: boolean?, dtype: string?, device: string?}
function RMSNorm:init(normalized_shape, opts, ...)
  local o = parse(normalized_shape, opts, ...)
  self.normalized_shape = check.sizes("RMSNorm", "normalized_shape", o.normalized_shape)
  if o.eps ~= nil then check.number("RMSNorm", "eps", o.eps, 0) end
  self.eps, self.affine = o.eps, o.elementwise_affine
  local weight
  if o.elementwise_affine then
    weight = Parameter(accel.ones(self.normalized_shape, { dtype = o.dtype, device = o.device }))
  end
  self:register_parameter("weight", weight)
  self.options = { eps = o.eps }
end

---@param x accel.Tensor
---@param residual? accel.Tensor of x's shape: normalise residual + x
---@return accel.Tensor y
---@return accel.Tensor? sum residual + x, if there is a residual
function RMSNorm:forward(x, residual)
  if residual then return add_rms_norm(x, residual, self.normalized_shape, self.weight, self.options) end
  return rms_norm(x, self.normalized_shape, self.weight, self.options)
end

function RMSNorm:extra_repr()
  return ("%s, eps=%s, elementwise_affine=%s"):format(arguments.text(self.normalized_shape),
    self.eps and ("%g"):format(self.eps) or "None", self.affine)
end

return RMSNorm
