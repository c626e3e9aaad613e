--- Tensors with a part replaced: parts of accel.functional. The part is written into a copy, which keeps x's gradients outside of it.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- x with src at the positions of `part`, a view of the positions of x's elements.
local function replaced(who, x, src, view)
  local n = x:numel()
  local at = view(require "accel".arange(n, { device = x.device }):reshape(x.shape))
  if not tensors.same_shape(at, src) then
    raise("%s: src has shape %s and the part of x has %s", who, tensors.shape_string(src), tensors.shape_string(at))
  end
  return x:reshape(-1):index_put({ at:reshape(-1) }, src:reshape(-1):to(x.dtype)):reshape(x.shape)
end

--- x with src written over the slice at a position of dim.
--- example: accel.zeros(2, 2):select_scatter(accel.ones(2), 1, 2) --> { { 0, 0 }, { 1, 1 } }
---@param x accel.Tensor
---@param src accel.Tensor of the slice's shape
---@param dim integer
---@param index integer a position from 1
---@return accel.Tensor
function M.select_scatter(x, src, dim, index)
  return replaced("select_scatter", x, src, function(at) return at:select(dim, index) end)
end

--- x with src written over a diagonal of two dims (see diagonal).
--- example: accel.zeros(2, 2):diagonal_scatter(accel.ones(2)) --> { { 1, 0 }, { 0, 1 } }
---@param x accel.Tensor
---@param src accel.Tensor of the diagonal's shape
---@param offset integer? default 0
---@param dim1 integer? default 1
---@param dim2 integer? default 2
---@return accel.Tensor
function M.diagonal_scatter(x, src, offset, dim1, dim2)
  return replaced("diagonal_scatter", x, src, function(at) return at:diagonal(offset or 0, dim1 or 1, dim2 or 2) end)
end

--- x with src written over a view of any strides, in elements (see as_strided). The view counts on x as contiguous.
--- example: accel.zeros(4):as_strided_scatter(accel.ones(2), { 2 }, { 2 }) --> { 1, 0, 1, 0 }
---@param x accel.Tensor
---@param src accel.Tensor of the view's shape
---@param size integer[]
---@param stride integer[]
---@param storage_offset integer? default 0
---@return accel.Tensor
function M.as_strided_scatter(x, src, size, stride, storage_offset)
  return replaced("as_strided_scatter", x, src, function(at) return at:as_strided(size, stride, storage_offset or 0) end)
end

return M
