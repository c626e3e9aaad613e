--- nn.Linear(in_features, out_features, {bias = true}): y = x W^T + b.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"

local linear = accel.linear

--- y = x W^T + b over the last dimension. W is [out_features, in_features], b [out_features]. Initial values: both
--- uniform in +-1 / sqrt(in_features).
--- example: accel.nn.Linear(3, 2)(accel.ones(4, 3)).shape --> { 4, 2 }
---@class accel.nn.Linear : accel.nn.Module
---@field weight accel.Tensor
---@field bias accel.Tensor?
local Linear = Module:extend("accel.nn.Linear")

local parse = arguments("Linear", { "in_features" }, { "out_features" }, { "bias", true }, { "device" },
  { "dtype", "f32" })

---@param in_features integer
---@param out_features integer
---@param opts? {bias: boolean?, dtype: string?, device: string?}
function Linear:init(in_features, out_features, opts, ...)
  local o = parse(in_features, out_features, opts, ...)
  self.in_features = check.positive("Linear", "in_features", o.in_features)
  self.out_features = check.positive("Linear", "out_features", o.out_features)
  local make = { dtype = o.dtype, device = o.device }
  self.weight = Parameter(accel.empty(self.out_features, self.in_features, make))
  self:register_parameter("bias", o.bias and Parameter(accel.empty(self.out_features, make)) or nil)
  self:reset_parameters()
end

--- Draws the initial values again.
function Linear:reset_parameters()
  local init = require "accel.nn.initialization"
  local bound = 1 / math.sqrt(self.in_features)
  init.uniform_(self.weight, -bound, bound)
  if self.bias then init.uniform_(self.bias, -bound, bound) end
end

function Linear:forward(x) return linear(x, self.weight, self.bias) end

function Linear:extra_repr()
  return ("in_features=%d, out_features=%d, bias=%s"):format(self.in_features, self.out_features,
    self.bias ~= nil)
end

return Linear
