--- Distances of nn.functional.
local accel = require "accel"
local arguments = require "accel.nn.arguments"

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

return F
