--- nn.LayerNorm(normalized_shape, {eps = 1e-5, elementwise_affine = true, bias = true}) over the last
--- dimensions.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local options = require "accel.util.options"

local layer_norm = accel.layer_norm

---@class accel.nn.LayerNorm : accel.nn.Module
local LayerNorm = Module:extend("accel.nn.LayerNorm")

---@param normalized_shape integer|integer[]
---@param opts? {eps: number?, elementwise_affine: boolean?, bias: boolean?, dtype: string?, device: string?}
function LayerNorm:init(normalized_shape, opts)
  local o = options("LayerNorm", opts, {
    eps = 1e-5, elementwise_affine = true, bias = true, dtype = "f32", device = options.none,
  })
  self.normalized_shape = check.sizes("LayerNorm", "normalized_shape", normalized_shape)
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

function LayerNorm:forward(x)
  return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.options)
end

function LayerNorm:extra_repr()
  return ("(%s%s), eps=%g, elementwise_affine=%s, bias=%s"):format(table.concat(self.normalized_shape, ", "),
    #self.normalized_shape == 1 and "," or "", self.eps, self.affine, self.bias ~= nil)
end

return LayerNorm
