--- Instance normalisation: InstanceNorm1d, InstanceNorm2d, InstanceNorm3d.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"
local tensors = require "accel.util.tensors"

local instance_norm = accel.instance_norm

local M = {}

--- rank: of an input with a batch dimension. Without one it is one less.
local function class(who, rank, sizes)
  local InstanceNorm = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "num_features" }, { "eps", 1e-5 }, { "momentum", 0.1 }, { "affine", false },
    { "track_running_stats", false }, { "device" }, { "dtype", "f32" }, { "bias", true })

  function InstanceNorm:init(...)
    local o = parse(...)
    self.num_features = check.positive(who, "num_features", o.num_features)
    self.eps = check.number(who, "eps", o.eps, 0)
    self.momentum = check.number(who, "momentum", o.momentum, 0, 1)
    self.affine, self.track_running_stats = o.affine, o.track_running_stats
    local n, make, weight, bias = self.num_features, { dtype = o.dtype, device = o.device }, nil, nil
    if o.affine then weight = Parameter(accel.ones(n, make)) end
    if o.affine and o.bias then bias = Parameter(accel.zeros(n, make)) end
    self:register_parameter("weight", weight)
    self:register_parameter("bias", bias)
    local track = o.track_running_stats
    if o.momentum ~= 0.1 and not track then no_effect.once(who, "momentum", "without track_running_stats; set it, or leave momentum out") end
    for _, name in ipairs { "dtype", "device" } do
      if o[name] ~= nil and o[name] ~= "f32" and not o.affine and not track then
        no_effect.once(who, name, "without affine and track_running_stats: the layer has no tensors")
      end
    end
    if o.bias == false and not o.affine then no_effect.once(who, "bias", "without affine: the layer has no parameters") end
    self:register_buffer("running_mean", track and accel.zeros(n, make) or nil)
    self:register_buffer("running_var", track and accel.ones(n, make) or nil)
    self:register_buffer("num_batches_tracked",
      track and accel.zeros({}, { dtype = "i64", device = o.device }) or nil)
  end

  function InstanceNorm:forward(x)
    local ndim = x.ndim
    local channels = ndim == rank and 2 or ndim == rank - 1 and 1
    if not channels or x.shape[channels] ~= self.num_features then
      raise("%s: expected (N, C, %s) or (C, %s) with C = %d, got shape %s", who, sizes, sizes,
        self.num_features, tensors.shape_string(x))
    end
    if channels == 1 then x = x:unsqueeze(1) end
    local mean, var = self.running_mean, self.running_var
    if self.training and recompute.depth > 0 then mean, var = nil, nil end -- this batch was counted in the forward
    local y = instance_norm(x, mean, var, self.weight, self.bias, self.training or not mean, self.momentum,
      self.eps)
    return channels == 1 and y:squeeze(1) or y
  end

  function InstanceNorm:extra_repr()
    return ("%d, eps=%g, momentum=%g, affine=%s, bias=%s, track_running_stats=%s"):format(self.num_features,
      self.eps, self.momentum, self.affine, self.bias ~= nil, self.track_running_stats)
  end

  return InstanceNorm
end

--- Normalises every channel of every example of (N, C, L) or (C, L) over its elements. affine = true (default false)
--- then scales and shifts per channel. track_running_stats (default false) keeps running statistics for eval mode, as
--- in BatchNorm1d.
--- example: accel.nn.InstanceNorm1d(1)(accel.tensor { { { 1.0, 3.0 } } }) --> { { { -1, 1 } } }
---@class accel.nn.InstanceNorm1d : accel.nn.Module
---@overload fun(num_features: integer, opts: table?): accel.nn.InstanceNorm1d
M.InstanceNorm1d = class("InstanceNorm1d", 3, "L")

--- Instance normalisation of (N, C, H, W) or (C, H, W). See InstanceNorm1d.
--- example: accel.nn.InstanceNorm2d(3)(accel.ones(2, 3, 4, 4)).shape --> { 2, 3, 4, 4 }
---@class accel.nn.InstanceNorm2d : accel.nn.Module
---@overload fun(num_features: integer, opts: table?): accel.nn.InstanceNorm2d
M.InstanceNorm2d = class("InstanceNorm2d", 4, "H, W")

--- Instance normalisation of (N, C, D, H, W) or (C, D, H, W). See InstanceNorm1d.
--- example: accel.nn.InstanceNorm3d(1)(accel.ones(2, 1, 2, 2, 2)).shape --> { 2, 1, 2, 2, 2 }
---@class accel.nn.InstanceNorm3d : accel.nn.Module
---@overload fun(num_features: integer, opts: table?): accel.nn.InstanceNorm3d
M.InstanceNorm3d = class("InstanceNorm3d", 5, "D, H, W")

return M
