--- Cross entropy of logits whose classes are shared out over ranks: no rank sees all of them (Shoeybi et al. 2019, section 3).
---
---   parallel_cross_entropy(logits, target, axis, opts)      logits (..., own classes), which begin at class opts.first
---
--- With m the greatest logit and s the sum of exponentials over all ranks, loss = log s + m - logit of the target, three
--- all-reduces of one number a row. gradient: (exp(logits - m) / s, less 1 at the target) times the loss's gradient.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- Counted rows, their targets among the own classes (others at class 0), and the mask of own targets. f32 masks (n,
--- 1).
local function places(target, first, n, ignore, dtype)
  local counts = target:ne(ignore)
  local own = target - first
  local here = own:ge(0):logical_and(own:lt(n)):logical_and(counts)
  return counts:to(dtype):unsqueeze(2), own:masked_fill(here:logical_not(), 0):unsqueeze(2), here:to(dtype):unsqueeze(2)
end

local function all_reduce(t, axis, op)
  if axis.size > 1 and not absent.is(t) then dist.all_reduce(t, { group = axis.group, op = op }) end
  return t
end

local Loss = accel.Function {
  name = "parallel_cross_entropy",
  forward = function(ctx, logits, target, axis, o)
    local wide = logits.dtype == "f64" and logits or logits:to("f32")
    local counts, at, here = places(target, o.first, logits.shape[2], o.ignore_index, wide.dtype)
    local most = all_reduce(wide:amax(2, true), axis, "max")
    local shifted = wide - most
    local picked = shifted:gather(2, at) * here
    local p = shifted:exp()
    local both = all_reduce(accel.cat({ p:sum(2, true), picked }, 2), axis, "sum")
    local s = both:narrow(2, 1, 1):contiguous()
    ctx:save_for_backward(p:div_(s), at, here, counts)
    ctx.dtype = logits.dtype
    return ((s:log() - both:narrow(2, 2, 1)) * counts):squeeze(2)
  end,
  backward = function(ctx, dy)
    local p, at, here, counts = ctx:saved_tensors()
    local dx = p:clone()
    dx:scatter_add_(2, at, -here)
    return (dx * (dy:unsqueeze(2) * counts)):to(ctx.dtype)
  end,
}

local declared = { first = 0, ignore_index = -100, reduction = "mean" }

--- example: local m = accel.parallel.init_device_mesh("cpu", { 1 }, { mesh_dim_names = { "tp" } })
---   return accel.parallel.parallel_cross_entropy(accel.zeros(1, 2), accel.tensor { 1 }, m:axis "tp") --> 0.693147
---@param logits accel.Tensor (..., own classes), a float
---@param target accel.Tensor (...), classes of the whole, i64 or i32
---@param axis accel.parallel.Axis ranks that share the classes
---@param opts? {first: integer?, ignore_index: integer?, reduction: "mean"|"sum"|"none"?} first: the first own class
---@return accel.Tensor
return function(logits, target, axis, opts, ...)
  local o = options("parallel_cross_entropy", opts, declared, ...)
  local n = logits.shape[logits.ndim]
  if target:numel() * n ~= logits:numel() then
    raise("parallel_cross_entropy: logits (%s) and target (%s) do not belong together", table.concat(logits.shape, ", "),
      table.concat(target.shape, ", "))
  end
  local rows = target:reshape(-1)
  local losses = Loss(logits:reshape(-1, n), rows, axis, o)
  if o.reduction == "none" then return losses:view(target.shape) end
  if o.reduction == "sum" then return losses:sum() end
  return losses:sum() / rows:ne(o.ignore_index):sum():clamp(1):to(losses.dtype) -- of no row at all it is 0
end
