--- Distances of nn.functional.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local F = {}

local pairwise_arguments = arguments("pairwise_distance", { "x1" }, { "x2" }, { "p", 2.0 }, { "eps", 1e-6 }, { "keepdim", false })

--- Norm of x1 - x2 + eps along the last dimension.
--- example: accel.nn.functional.pairwise_distance(accel.tensor {{3.0, 4.0}}, accel.zeros(1, 2), {eps = 0}) --> { 5 }
---@param x1 accel.Tensor
---@param x2 accel.Tensor
---@param ... any p = 2, eps = 1e-6, keepdim = false by position or in one table, in which x1 and x2 may stand as well
---@return accel.Tensor
function F.pairwise_distance(x1, x2, ...)
  local o = pairwise_arguments(x1, x2, ...)
  return accel.norm(o.x1 - o.x2 + o.eps, o.p, -1, o.keepdim)
end

--- Slopes of ALiBi, one per head: 2^(-8 i / n) and, for other than powers of two, those in between. See
--- scaled_dot_product_attention.
--- example: accel.nn.functional.alibi_slopes(8):narrow(1, 1, 2) --> { 0.5, 0.25 }
---@param n_heads integer
---@return accel.Tensor
function F.alibi_slopes(...) return require "accel.nn.alibi"(...) end

local triplet_arguments = arguments("triplet_margin_with_distance_loss", { "anchor" }, { "positive" }, { "negative" },
  { "distance_function" }, { "margin", 1.0 }, { "swap", false }, { "reduction", "mean" })

--- max(0, d(anchor, positive) - d(anchor, negative) + margin), d being distance_function, pairwise_distance by default.
--- With swap, d(positive, negative) counts if it is the smaller distance to the negative.
--- example: local function d(a, b) return (a - b):abs() end
---   return accel.nn.functional.triplet_margin_with_distance_loss(accel.zeros(1), accel.ones(1), accel.zeros(1), { distance_function = d }) --> 2
---@param anchor accel.Tensor
---@param positive accel.Tensor
---@param negative accel.Tensor
---@param ... any distance_function, margin = 1, swap = false, reduction = "mean" by position or in one table
---@return accel.Tensor
function F.triplet_margin_with_distance_loss(anchor, positive, negative, ...)
  local who = "triplet_margin_with_distance_loss"
  local o = triplet_arguments(anchor, positive, negative, ...)
  local d = o.distance_function or F.pairwise_distance
  check.word(who, "reduction", o.reduction, { "none", "mean", "sum" })
  if check.number(who, "margin", o.margin) <= 0 then raise("%s: margin must be greater than 0, got %g", who, o.margin) end
  if o.anchor.ndim ~= o.positive.ndim or o.anchor.ndim ~= o.negative.ndim then
    raise("%s: anchor, positive and negative must have the same number of dimensions", who)
  end
  local near, far = d(o.anchor, o.positive), d(o.anchor, o.negative)
  if o.swap then far = accel.minimum(far, d(o.positive, o.negative)) end
  local l = (near - far + o.margin):clamp(0)
  if o.reduction == "none" then return l end
  return o.reduction == "sum" and l:sum() or l:mean()
end

return F
