--- Batch normalisation: BatchNorm1d, BatchNorm2d, BatchNorm3d.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"
local tensors = require "accel.util.tensors"

local batch_norm = accel.batch_norm

local M = {}

--- Normalises x, of any rank, and counts the batch.
---@param self accel.nn.BatchNorm1d
---@param x accel.Tensor
---@return accel.Tensor
function M.run(self, x)
  local mean, var, training = self.running_mean, self.running_var, self.training
  if training and recompute.depth > 0 then mean, var = nil, nil end -- this batch was counted in the forward
  local counted = training and mean and self.num_batches_tracked
  local momentum = self.momentum or (counted and 1 / (counted:item() + 1)) or 0.0
  local y = batch_norm(x, mean, var, self.weight, self.bias, training or not mean, momentum, self.eps)
  if counted then counted:add_(1) end
  return y
end

--- dims: which ranks of input the class takes.
local function class(who, dims)
  local BatchNorm = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "num_features" }, { "eps", 1e-5 }, { "momentum", 0.1, any = true },
    { "affine", true }, { "track_running_stats", true }, { "device" }, { "dtype", "f32" }, { "bias", true })

  function BatchNorm:init(...)
    local o = parse(...)
    self.num_features = check.positive(who, "num_features", o.num_features)
    self.eps = check.number(who, "eps", o.eps, 0)
    self.momentum = o.momentum and check.number(who, "momentum", o.momentum, 0, 1)
    self.affine, self.track_running_stats = o.affine, o.track_running_stats
    local n, make, weight, bias = self.num_features, { dtype = o.dtype, device = o.device }, nil, nil
    if o.affine then weight = Parameter(accel.ones(n, make)) end
    if o.affine and o.bias then bias = Parameter(accel.zeros(n, make)) end
    self:register_parameter("weight", weight)
    self:register_parameter("bias", bias)
    local track = o.track_running_stats
    self:register_buffer("running_mean", track and accel.zeros(n, make) or nil)
    self:register_buffer("running_var", track and accel.ones(n, make) or nil)
    self:register_buffer("num_batches_tracked",
      track and accel.zeros({}, { dtype = "i64", device = o.device }) or nil)
  end

  --- Resets the running statistics.
  function BatchNorm:reset_running_stats()
    if not self.track_running_stats then return end
    self.running_mean:zero_()
    self.running_var:fill_(1)
    self.num_batches_tracked:zero_()
  end

  --- Weight 1, bias 0, nothing tracked.
  function BatchNorm:reset_parameters()
    self:reset_running_stats()
    local init = require "accel.nn.initialization"
    if self.weight then init.ones_(self.weight) end
    if self.bias then init.zeros_(self.bias) end
  end

  function BatchNorm:forward(x)
    if not dims[x.ndim] then
      raise("%s: expected %s, got shape %s", who, dims.text, tensors.shape_string(x))
    end
    return M.run(self, x)
  end

  function BatchNorm:extra_repr()
    return ("%d, eps=%g, momentum=%s, affine=%s, bias=%s, track_running_stats=%s"):format(self.num_features,
      self.eps, self.momentum and ("%g"):format(self.momentum) or "None", self.affine, self.bias ~= nil,
      self.track_running_stats)
  end

  return BatchNorm
end

--- y = (x - mean) / sqrt(var + eps) * weight + bias per channel of (N, C) or (N, C, L). In training, mean and (biased)
--- variance are the batch's, and running_mean, running_var move towards them (the variance unbiased) by momentum, or
--- with momentum = false to the mean over all batches. In eval mode the running ones are used. Initial values: weight
--- 1, bias 0, running_mean 0, running_var 1.
--- example: accel.nn.BatchNorm1d(1)(accel.tensor { { 1.0 }, { 3.0 } }) --> { { -1 }, { 1 } }
--- example: accel.nn.BatchNorm1d(2):eval()(accel.ones(3, 2, 4)).shape --> { 3, 2, 4 }
---@class accel.nn.BatchNorm1d : accel.nn.Module
---@field running_mean accel.Tensor?
---@field running_var accel.Tensor?
---@field num_batches_tracked accel.Tensor?
---@overload fun(num_features: integer, opts: table?): accel.nn.BatchNorm1d
M.BatchNorm1d = class("BatchNorm1d", { [2] = true, [3] = true, text = "(N, C) or (N, C, L)" })

--- Batch normalisation per channel of (N, C, H, W). See BatchNorm1d.
--- example: local m = accel.nn.BatchNorm2d(1, { momentum = 1 }) m(accel.ones(2, 1, 2, 2)) return m.running_mean --> {1}
---@class accel.nn.BatchNorm2d : accel.nn.BatchNorm1d
---@overload fun(num_features: integer, opts: table?): accel.nn.BatchNorm2d
M.BatchNorm2d = class("BatchNorm2d", { [4] = true, text = "(N, C, H, W)" })

--- Batch normalisation per channel of (N, C, D, H, W). See BatchNorm1d.
--- example: accel.nn.BatchNorm3d(2)(accel.ones(1, 2, 2, 2, 2)).shape --> { 1, 2, 2, 2, 2 }
---@class accel.nn.BatchNorm3d : accel.nn.BatchNorm1d
---@overload fun(num_features: integer, opts: table?): accel.nn.BatchNorm3d
M.BatchNorm3d = class("BatchNorm3d", { [5] = true, text = "(N, C, D, H, W)" })

return M
