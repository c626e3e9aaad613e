--- SyncBatchNorm: batch normalisation over the batches of all ranks.
local accel = require "accel"
local BatchNorm1d = require("accel.nn.batch_norm").BatchNorm1d
local BatchNorm = require "accel.nn.batch_norm"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local class = require "accel.util.class"
local dist = require "accel.dist"
local once_differentiable = require "accel.autograd.once_differentiable"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"
local tensors = require "accel.util.tensors"

--- A per-channel tensor (C) in the dims of x.
local function as(t, x)
  local shape = {}
  for i = 1, x.ndim do shape[i] = i == 2 and -1 or 1 end
  return t:reshape(shape)
end

local function others(x)
  local dims = { 1 }
  for i = 3, x.ndim do dims[#dims + 1] = i end
  return dims
end

--- Sums over the ranks of the group.
local function reduce(t, group)
  dist.all_reduce(t, { group = group })
  return t
end

--- Mean and biased variance per channel over all ranks, and the number of elements of a channel. Each rank sends its count, its sum and its
--- squares in f64: a mean that is large beside the deviations costs no digits of an f32.
local function statistics(x, group)
  local n, c = x:numel() // x.shape[2], x.shape[2]
  local wide = { dtype = "f64", device = x.device }
  local own = accel.zeros(2 * c + 1, wide)
  if n > 0 then
    local part = x.dtype == "f64" and x or x:to "f32"
    local mean, var = part:mean(others(x)):to "f64", part:var(others(x), { correction = 0 }):to "f64"
    own:narrow(1, 1, c):copy_(mean * n)
    own:narrow(1, c + 1, c):copy_((var + mean * mean) * n)
    own:narrow(1, 2 * c + 1, 1):fill_(n)
  end
  reduce(own, group)
  local count = own:narrow(1, 2 * c + 1, 1)
  local mean = own:narrow(1, 1, c) / count
  return mean, (own:narrow(1, c + 1, c) / count - mean * mean):clamp(0), count
end

local norms = setmetatable({}, { __mode = "k" }) -- group, or `dist` for all ranks -> its function

local function norm(group)
  local known = norms[group or dist]
  if known then return known end
  known = accel.Function {
    name = "sync_batch_norm",
    forward = function(ctx, x, weight, bias, eps)
      local mean, var, count = statistics(x, group)
      local dtype = x.dtype == "f64" and "f64" or "f32"
      ctx.count, ctx.has_bias = count, bias ~= nil
      mean, var = mean:to(dtype), var:to(dtype)
      ctx:save_for_backward(x, mean, (var + eps):rsqrt(), weight)
      ctx:mark_non_differentiable(mean, var, count)
      local y = accel.batch_norm(x, mean, var, weight, bias, false, 0.0, eps)
      return y, mean, var, count
    end,
    backward = once_differentiable(function(ctx, dy)
      local x, mean, rstd, weight = ctx:saved_tensors()
      local wide = mean.dtype
      local dims, c = others(x), x.shape[2]
      local d = dy:to(wide)
      local normal = (x:to(wide) - as(mean, x)) * as(rstd, x)
      local own = accel.cat({ d:sum(dims), (d * normal):sum(dims) }, 1)
      local total = reduce(own:clone():to "f64", group) / ctx.count
      total = total:to(wide)
      local dx = d - as(total:narrow(1, 1, c), x) - normal * as(total:narrow(1, c + 1, c), x)
      dx = dx * as(weight and rstd * weight:to(wide) or rstd, x)
      return dx:to(x.dtype), weight and own:narrow(1, c + 1, c):to(weight.dtype), ctx.has_bias and own:narrow(1, 1, c):to(wide) or nil
    end),
  }
  norms[group or dist] = known
  return known
end

--- Batch normalisation of (N, C, ...) with mean and variance over the batches of all ranks, or of the ranks of process_group (a group
--- of accel.dist). Otherwise as BatchNorm2d. On one rank, and in eval mode, it is BatchNorm. Ranks may have batches of different sizes,
--- also empty ones. All ranks must run it together, forward and backward. Every option of BatchNorm1d, and process_group.
--- example: accel.nn.SyncBatchNorm(1)(accel.tensor { { 1.0 }, { 3.0 } }) --> { { -1 }, { 1 } }
---@class accel.nn.SyncBatchNorm : accel.nn.BatchNorm1d
---@overload fun(num_features: integer, opts: table?): accel.nn.SyncBatchNorm
local SyncBatchNorm = BatchNorm1d:extend("accel.nn.SyncBatchNorm")

local parse = arguments("SyncBatchNorm", { "num_features" }, { "eps", 1e-5 }, { "momentum", 0.1, any = true }, { "affine", true },
  { "track_running_stats", true }, { "process_group" }, { "device" }, { "dtype", "f32" }, { "bias", true })

---@param ... any
function SyncBatchNorm:init(...)
  local o = parse(...)
  self.process_group, o.process_group = o.process_group, nil
  BatchNorm1d.init(self, o)
end

function SyncBatchNorm:forward(x)
  if not tensors.is_tensor(x) or x.ndim < 2 or x.shape[2] ~= self.num_features then
    raise("SyncBatchNorm: expected (N, %d, ...), got shape %s", self.num_features, tensors.is_tensor(x) and tensors.shape_string(x) or "none")
  end
  local group = self.process_group
  if not self.training or not dist.is_initialized() or dist.get_world_size(group) == 1 then return BatchNorm.run(self, x) end
  local mean, var = self.running_mean, self.running_var
  if recompute.depth > 0 then mean, var = nil, nil end -- this batch was counted in the forward
  local y, m, v, count = norm(group)(x, self.weight, self.bias, self.eps)
  if self.training and mean then
    local _ <close> = accel.no_grad()
    local counted = self.num_batches_tracked:add_(1)
    local by = self.momentum or 1 / counted:item()
    mean:lerp_(m:to(mean.dtype), by)
    var:lerp_((v * (count / (count - 1):clamp(1))):to(var.dtype), by)
  end
  return y
end

--- The module with every BatchNorm1d, BatchNorm2d and BatchNorm3d in it replaced by a SyncBatchNorm of the same tensors: before it is
--- prepared, optimizers may exist already. A BatchNorm itself is returned as a new layer.
--- example: accel.nn.SyncBatchNorm.convert_sync_batchnorm(accel.nn.BatchNorm2d(3))(accel.ones(1, 3, 2, 2)).shape --> { 1, 3, 2, 2 }
---@param module accel.nn.Module
---@param process_group? any a group of accel.dist
---@return accel.nn.Module
function SyncBatchNorm.convert_sync_batchnorm(module, process_group)
  if not Module.is_module(module) then raise("convert_sync_batchnorm: %s", Module.not_a_module(module)) end
  local cls = class.of(module)
  if cls == BatchNorm.BatchNorm1d or cls == BatchNorm.BatchNorm2d or cls == BatchNorm.BatchNorm3d then
    local new = SyncBatchNorm(module.num_features, { eps = module.eps, momentum = module.momentum or false, affine = false,
      track_running_stats = false, process_group = process_group })
    new.affine, new.track_running_stats, new.training = module.affine, module.track_running_stats, module.training
    for _, name in ipairs { "weight", "bias" } do new:register_parameter(name, module[name]) end
    for _, name in ipairs { "running_mean", "running_var", "num_batches_tracked" } do new:register_buffer(name, module[name]) end
    return new
  end
  for _, child, kind, field in module:_fields() do
    if kind == "module" then
      local new = SyncBatchNorm.convert_sync_batchnorm(child, process_group)
      if new ~= child then module[field] = new end
    end
  end
  return module
end

return SyncBatchNorm
