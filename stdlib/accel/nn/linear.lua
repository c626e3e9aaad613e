--- nn.Linear(in_features, out_features, {bias = true}): y = x W^T + b, W is [out, in].
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local options = require "accel.util.options"

local linear = accel.linear

---@class accel.nn.Linear : accel.nn.Module
local Linear = Module:extend("accel.nn.Linear")

---@param in_features integer
---@param out_features integer
---@param opts? {bias: boolean?, dtype: string?, device: string?}
function Linear:init(in_features, out_features, opts)
  local o = options("Linear", opts, { bias = true, dtype = "f32", device = options.none })
  in_features = check.positive("Linear", "in_features", in_features)
  out_features = check.positive("Linear", "out_features", out_features)
  self.in_features, self.out_features = in_features, out_features
  local make = { dtype = o.dtype, device = o.device }
  self.weight = Parameter(accel.empty(out_features, in_features, make))
  self:register_parameter("bias", o.bias and Parameter(accel.empty(out_features, make)) or nil)
  self:reset_parameters()
end

--- Weight and bias uniform in +-1 / sqrt(in_features), as in PyTorch.
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
