--- nn.RMSNorm(normalized_shape, {eps=, elementwise_affine = true}): x / rms(x) * weight over the last
--- dimensions. Without eps the smallest step of the dtype is used, as in PyTorch.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local options = require "accel.util.options"

local rms_norm = accel.rms_norm

---@class accel.nn.RMSNorm : accel.nn.Module
local RMSNorm = Module:extend("accel.nn.RMSNorm")

---@param normalized_shape integer|integer[]
---@param opts? {eps: number?, elementwise_affine: boolean?, dtype: string?, device: string?}
function RMSNorm:init(normalized_shape, opts)
  local o = options("RMSNorm", opts, {
    eps = options.none, elementwise_affine = true, dtype = "f32", device = options.none,
  })
  self.normalized_shape = check.sizes("RMSNorm", "normalized_shape", normalized_shape)
  if o.eps ~= nil then check.number("RMSNorm", "eps", o.eps, 0) end
  self.eps, self.affine = o.eps, o.elementwise_affine
  local weight
  if o.elementwise_affine then
    weight = Parameter(accel.ones(self.normalized_shape, { dtype = o.dtype, device = o.device }))
  end
  self:register_parameter("weight", weight)
  self.options = { eps = o.eps }
end

function RMSNorm:forward(x) return rms_norm(x, self.normalized_shape, self.weight, self.options) end

function RMSNorm:extra_repr()
  return ("(%s%s), eps=%s, elementwise_affine=%s"):format(table.concat(self.normalized_shape, ", "),
    #self.normalized_shape == 1 and "," or "", self.eps and ("%g"):format(self.eps) or "None", self.affine)
end

return RMSNorm
