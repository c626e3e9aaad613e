--- nn.GroupNorm(num_groups, num_channels, {eps = 1e-5, affine = true}).
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local group_norm = accel.group_norm

--- Normalises each of num_groups groups of channels of (N, C, ...) over its elements, then scales and shifts
--- per channel. Initial values: weight 1, bias 0.
--- example: accel.nn.GroupNorm(1, 2)(accel.tensor { { 1.0, 3.0 } }) --> { { -1, 1 } }
--- example: accel.nn.GroupNorm(2, 4)(accel.ones(1, 4, 3, 3)).shape --> { 1, 4, 3, 3 }
---@class accel.nn.GroupNorm : accel.nn.Module
---@field weight accel.Tensor?
---@field bias accel.Tensor?
local GroupNorm = Module:extend("accel.nn.GroupNorm")

local parse = arguments("GroupNorm", { "num_groups" }, { "num_channels" }, { "eps", 1e-5 }, { "affine", true },
  { "device" }, { "dtype", "f32" }, { "bias", true })

---@param num_groups integer
---@param num_channels integer a multiple of num_groups
---@param opts? {eps: number?, affine: boolean?, bias: boolean?, dtype: string?, device: string?}
function GroupNorm:init(num_groups, num_channels, opts, ...)
  local o = parse(num_groups, num_channels, opts, ...)
  local groups = check.positive("GroupNorm", "num_groups", o.num_groups)
  local channels = check.positive("GroupNorm", "num_channels", o.num_channels)
  if channels % groups ~= 0 then
    raise("GroupNorm: num_channels (%d) must be a multiple of num_groups (%d)", channels, groups)
  end
  self.num_groups, self.num_channels = groups, channels
  self.eps, self.affine = check.number("GroupNorm", "eps", o.eps, 0), o.affine
  local make, weight, bias = { dtype = o.dtype, device = o.device }, nil, nil
  if o.affine then weight = Parameter(accel.ones(channels, make)) end
  if o.affine and o.bias then bias = Parameter(accel.zeros(channels, make)) end
  self:register_parameter("weight", weight)
  self:register_parameter("bias", bias)
end

function GroupNorm:forward(x) return group_norm(x, self.num_groups, self.weight, self.bias, self.eps) end

function GroupNorm:extra_repr()
  return ("%d, %d, eps=%g, affine=%s, bias=%s"):format(self.num_groups, self.num_channels, self.eps, self.affine,
    self.bias ~= nil)
end

return GroupNorm
