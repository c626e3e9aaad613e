--- nn.Bilinear(in1_features, in2_features, out_features, {bias = true}): y = x1^T A x2 + b.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local F = require "accel.nn.functional"

--- y[o] = sum over i, j of x1[i] weight[o, i, j] x2[j], plus bias[o]. Leading dimensions of both must be the same.
--- Initial values: both uniform in +-1 / sqrt(in1_features).
--- example: accel.nn.Bilinear(2, 3, 4)(accel.ones(5, 2), accel.ones(5, 3)).shape --> { 5, 4 }
---@class accel.nn.Bilinear : accel.nn.Module
---@field weight accel.Tensor [out_features, in1_features, in2_features]
---@field bias accel.Tensor?
local Bilinear = Module:extend("accel.nn.Bilinear")

local parse = arguments("Bilinear", { "in1_features" }, { "in2_features" }, { "out_features" },
  { "bias", true }, { "device" }, { "dtype", "f32" })

---@param in1_features integer
---@param in2_features integer
---@param out_features integer
---@param opts? {bias: boolean?, dtype: string?, device: string?}
function Bilinear:init(in1_features, in2_features, out_features, opts, ...)
  local o = parse(in1_features, in2_features, out_features, opts, ...)
  local n1 = check.positive("Bilinear", "in1_features", o.in1_features)
  local n2 = check.positive("Bilinear", "in2_features", o.in2_features)
  local n = check.positive("Bilinear", "out_features", o.out_features)
  self.in1_features, self.in2_features, self.out_features = n1, n2, n
  local make = { dtype = o.dtype, device = o.device }
  self.weight = Parameter(accel.empty(n, n1, n2, make))
  self:register_parameter("bias", o.bias and Parameter(accel.empty(n, make)) or nil)
  self:reset_parameters()
end

--- Draws the initial values again.
function Bilinear:reset_parameters()
  local init = require "accel.nn.initialization"
  local bound = 1 / math.sqrt(self.in1_features)
  init.uniform_(self.weight, -bound, bound)
  if self.bias then init.uniform_(self.bias, -bound, bound) end
end

function Bilinear:forward(x1, x2) return F.bilinear(x1, x2, self.weight, self.bias) end

function Bilinear:extra_repr()
  return ("in1_features=%d, in2_features=%d, out_features=%d, bias=%s"):format(self.in1_features,
    self.in2_features, self.out_features, self.bias ~= nil)
end

return Bilinear
