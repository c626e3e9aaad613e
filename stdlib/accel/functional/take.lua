--- Elements by their position in the whole tensor, in row-major order from 0: parts of accel.functional.
local accel = require "accel"
local raise = require "accel.util.raise"
local written = require "accel.functional.written"

local M = {}

-- Positions as i64 between 0 and n - 1: negative ones count from the end.
local function positions(who, index, n)
  if index.dtype ~= "i64" then raise("%s: index must hold i64, got %s", who, index.dtype) end
  return accel.where(index:lt(0), index + n, index)
end

--- The elements of x at positions in row-major order, which count from 0 or, negative, from the end.
--- example: accel.tensor({ { 1, 2 }, { 3, 4 } }):take(accel.tensor { 0, -1 }) --> { 1, 4 }
---@param x accel.Tensor
---@param index accel.Tensor i64
---@return accel.Tensor of index's shape
function M.take(x, index)
  local at = positions("take", index, x:numel()):reshape(-1)
  return x:reshape(-1):index_select(1, at):reshape(index.shape)
end

--- x with source's elements at positions in row-major order, which count from 0 or, negative, from the end. With accumulate they are
--- added.
--- example: accel.zeros(3):put(accel.tensor { 0, -1 }, accel.tensor { 5.0, 6.0 }) --> { 5, 0, 6 }
---@param x accel.Tensor
---@param index accel.Tensor i64
---@param source accel.Tensor of as many elements as index
---@param accumulate boolean? default false
---@return accel.Tensor
function M.put(x, index, source, accumulate)
  if source:numel() ~= index:numel() then
    raise("put: source has %d elements and index %d; give as many", source:numel(), index:numel())
  end
  local at = positions("put", index, x:numel()):reshape(-1)
  return x:reshape(-1):index_put({ at }, source:reshape(-1), accumulate or false):reshape(x.shape)
end

local put_ = written("put_", M.put)
--- put in place.
--- example: accel.zeros(2):put_(accel.tensor { 1 }, accel.tensor { 3.0 }) --> { 0, 3 }
---@param x accel.Tensor
---@param index accel.Tensor
---@param source accel.Tensor
---@param accumulate boolean?
---@return accel.Tensor x
function M.put_(x, index, source, accumulate) return put_(x, index, source, accumulate) end

--- The indices along each dim of a shape at positions in row-major order.
--- example: accel.unravel_index(accel.tensor { 0, 5 }, { 2, 3 })[2] --> { 0, 2 }
---@param indices accel.Tensor integers
---@param shape integer|integer[]
---@return accel.Tensor[] one for each dim
function M.unravel_index(indices, shape)
  if indices:is_floating_point() or indices.dtype == "bool" then raise("unravel_index: indices must be integers, got %s", indices.dtype) end
  if type(shape) == "number" then shape = { shape } end
  local list = {}
  for d = #shape, 1, -1 do
    list[d] = indices:remainder(shape[d])
    indices = indices // shape[d]
  end
  return list
end

--- accel.nonzero with as_tuple = true: the indices of the elements that are not zero, one tensor for each dim, as t[{ ... }] takes them.
--- example: accel.tensor({ { 1, 0 }, { 0, 3 } }):nonzero({ as_tuple = true })[2] --> { 0, 1 }
---@param op function accel.nonzero itself
---@param x accel.Tensor
---@param opts {as_tuple: boolean?}
---@return accel.Tensor|accel.Tensor[]
function M.nonzero(op, x, opts, ...)
  if opts == nil and select("#", ...) == 0 then return op(x) end
  if type(opts) ~= "table" or select("#", ...) > 0 then return op(x, opts, ...) end
  for key in next, opts do
    if key ~= "as_tuple" then return op(x, opts) end
  end
  local at = op(x.ndim == 0 and opts.as_tuple and x:reshape(1) or x)
  return opts.as_tuple and at:unbind(2) or at
end

--- nonzero with a fixed number of rows: the first `size` indices, and rows of fill_value where there are fewer.
--- example: accel.nonzero_static(accel.tensor { 0, 5, 0 }, { size = 2 }) --> { { 1 }, { -1 } }
---@param x accel.Tensor
---@param opts {size: integer, fill_value: integer?}
---@return accel.Tensor (size, rank of x)
function M.nonzero_static(x, opts)
  local size, value = opts.size, opts.fill_value or -1
  for key in next, opts do
    if key ~= "size" and key ~= "fill_value" then raise("nonzero_static: unknown option '%s'; there are size and fill_value", tostring(key)) end
  end
  if math.type(size) ~= "integer" or size < 0 then raise("nonzero_static: size must be an integer of at least 0") end
  local at = x:nonzero()
  if at.shape[1] >= size then return at:narrow(1, 1, size) end
  return accel.cat({ at, accel.full({ size - at.shape[1], at.shape[2] }, value, { device = x.device }) }, 1)
end

return M
