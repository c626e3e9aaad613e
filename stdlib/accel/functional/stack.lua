--- Tensors brought to a rank, and joined: parts of accel.functional.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- One tensor, a list of them, or several arguments -> what fn makes of each, in the same form.
local function each(who, fn, first, ...)
  if select("#", ...) == 0 then
    if tensors.is_tensor(first) then return fn(first) end
    if type(first) ~= "table" then raise("%s: expected tensors, got %s", who, type(first)) end
  else
    first = { first, ... }
  end
  local list = {}
  for i, t in ipairs(first) do
    if not tensors.is_tensor(t) then raise("%s: entry %d must be a tensor, got %s", who, i, type(t)) end
    list[i] = fn(t)
  end
  return list
end

local function of_rank_1(t) return t.ndim == 0 and t:reshape(1) or t end
local function of_rank_2(t) return t.ndim < 2 and t:reshape(1, -1) or t end
local function of_rank_3(t)
  if t.ndim < 2 then return t:reshape(1, -1, 1) end
  return t.ndim == 2 and t:unsqueeze(3) or t
end

--- Each tensor with at least one dim: one of rank 0 gets one. A tensor gives a tensor, a list a list.
--- example: accel.atleast_1d(accel.tensor(3)).shape --> { 1 }
---@param ... accel.Tensor|accel.Tensor[]
---@return accel.Tensor|accel.Tensor[]
function M.atleast_1d(...) return each("atleast_1d", of_rank_1, ...) end

--- Each tensor with at least two dims: n elements become one row (1, n).
--- example: accel.atleast_2d(accel.ones(3)).shape --> { 1, 3 }
---@param ... accel.Tensor|accel.Tensor[]
---@return accel.Tensor|accel.Tensor[]
function M.atleast_2d(...) return each("atleast_2d", of_rank_2, ...) end

--- Each tensor with at least three dims: n elements become (1, n, 1), a matrix gets a last dim.
--- example: accel.atleast_3d(accel.ones(2, 3)).shape --> { 2, 3, 1 }
---@param ... accel.Tensor|accel.Tensor[]
---@return accel.Tensor|accel.Tensor[]
function M.atleast_3d(...) return each("atleast_3d", of_rank_3, ...) end

--- Tensors of rank 0 and 1 as the columns of a matrix, joined with others along dim 2.
--- example: accel.column_stack { accel.tensor { 1, 2 }, accel.tensor { 3, 4 } } --> { { 1, 3 }, { 2, 4 } }
---@param list accel.Tensor[]
---@return accel.Tensor
function M.column_stack(list)
  return accel.cat(each("column_stack", function(t) return t.ndim < 2 and t:reshape(-1, 1) or t end, list), 2)
end

--- Tensors joined along dim 3, after atleast_3d.
--- example: accel.dstack { accel.tensor { 1, 2 }, accel.tensor { 3, 4 } } --> { { { 1, 3 }, { 2, 4 } } }
---@param list accel.Tensor[]
---@return accel.Tensor
function M.dstack(list) return accel.cat(each("dstack", of_rank_3, list), 3) end

return M
