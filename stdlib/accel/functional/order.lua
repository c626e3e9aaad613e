--- Tensors in another order: parts of accel.functional.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- x with its columns, dim 2, in reverse order.
--- example: accel.fliplr(accel.tensor { { 1, 2 }, { 3, 4 } }) --> { { 2, 1 }, { 4, 3 } }
---@param x accel.Tensor of rank 2 or more
---@return accel.Tensor
function M.fliplr(x)
  if x.ndim < 2 then raise("fliplr: needs a tensor of rank 2 or more, got shape %s", tensors.shape_string(x)) end
  return x:flip(2)
end

--- x with its rows, dim 1, in reverse order.
--- example: accel.flipud(accel.tensor { 1, 2, 3 }) --> { 3, 2, 1 }
---@param x accel.Tensor of rank 1 or more
---@return accel.Tensor
function M.flipud(x)
  if x.ndim < 1 then raise "flipud: needs a tensor of rank 1 or more; one of rank 0 has no rows" end
  return x:flip(1)
end

--- x sorted along dim 1, in ascending order.
--- example: accel.msort(accel.tensor { 3, 1, 2 }) --> { 1, 2, 3 }
---@param x accel.Tensor
---@return accel.Tensor
function M.msort(x)
  if x.ndim == 0 then return x:clone() end
  return (x:sort(1))
end

--- A matrix with x's elements on a diagonal and zeros elsewhere.
--- example: accel.diagflat(accel.tensor { { 1, 2 } }) --> { { 1, 0 }, { 0, 2 } }
---@param x accel.Tensor
---@param offset integer? default 0
---@return accel.Tensor
function M.diagflat(x, offset) return x:reshape(-1):diag(offset or 0) end

--- x itself: the sign +.
--- example: accel.positive(accel.tensor { 1, -2 }) --> { 1, -2 }
---@param x accel.Tensor of numbers
---@return accel.Tensor
function M.positive(x)
  if x.dtype == "bool" then raise "positive: truth values have no sign; cast them first" end
  return x
end

return M
