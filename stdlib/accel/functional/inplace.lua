--- In-place forms of ops that are made of others: parts of accel.functional.
local accel = require "accel.core"
local written = require "accel.functional.written"

local M = {}

--- x:float_power in place, into a tensor of f64.
--- example: accel.tensor({ 2.0, 3 }, { dtype = "f64" }):float_power_(2) --> { 4, 9 }
---@param x accel.Tensor
---@param exponent accel.Tensor|number
---@return accel.Tensor
function M.float_power_(x, exponent) return written("float_power_", accel.float_power)(x, exponent) end

--- x:ldexp in place.
--- example: accel.tensor({ 1.5 }):ldexp_(accel.tensor { 1 }) --> { 3 }
---@param x accel.Tensor
---@param other accel.Tensor
---@return accel.Tensor
function M.ldexp_(x, other) return written("ldexp_", accel.ldexp)(x, other) end

--- x:renorm in place.
--- example: accel.tensor({ { 3.0, 4 } }):renorm_(2, 1, 1) --> { { 0.6, 0.8 } }
---@param x accel.Tensor
---@param p number
---@param dim integer
---@param maxnorm number
---@return accel.Tensor
function M.renorm_(x, p, dim, maxnorm) return written("renorm_", accel.renorm)(x, p, dim, maxnorm) end

--- x:scatter_reduce in place.
--- example: accel.zeros(2):scatter_reduce_(1, accel.tensor { 0, 0 }, accel.tensor { 1.0, 2 }, "sum") --> { 3, 0 }
---@param x accel.Tensor
---@param dim integer
---@param index accel.Tensor
---@param src accel.Tensor
---@param reduce string
---@param opts? {include_self: boolean?}
---@return accel.Tensor
function M.scatter_reduce_(x, dim, index, src, reduce, opts)
  return written("scatter_reduce_", accel.scatter_reduce)(x, dim, index, src, reduce, opts)
end

--- x:index_reduce in place.
--- example: accel.ones(2):index_reduce_(1, accel.tensor { 0, 0 }, accel.tensor { 3.0, 2 }, "prod") --> { 6, 1 }
---@param x accel.Tensor
---@param dim integer
---@param index accel.Tensor
---@param source accel.Tensor
---@param reduce string
---@param opts? {include_self: boolean?}
---@return accel.Tensor
function M.index_reduce_(x, dim, index, source, reduce, opts)
  return written("index_reduce_", accel.index_reduce)(x, dim, index, source, reduce, opts)
end

--- x:polygamma(n) in place.
--- example: accel.tensor({ 1.0 }):polygamma_(1) --> { 1.644934 }
---@param x accel.Tensor
---@param n integer
---@return accel.Tensor
function M.polygamma_(x, n)
  return written("polygamma_", function(t) return accel.polygamma(n, t) end)(x)
end

--- x:mvlgamma(p) in place.
--- example: accel.tensor({ 3.0 }):mvlgamma_(2) --> { 1.550195 }
---@param x accel.Tensor
---@param p integer
---@return accel.Tensor
function M.mvlgamma_(x, p) return written("mvlgamma_", accel.mvlgamma)(x, p) end

return M
