--- Positions and choices of elements: parts of accel.functional.
local accel = require "accel.core"
local raise = require "accel.util.raise"

local M = {}

-- The positions of the true elements of a mask of this shape, as rows: 0-based, as all values that name positions.
local function positions(mask, opts)
  local at = accel.nonzero(mask):transpose(1, 2):contiguous()
  local dtype = opts and opts.dtype or "i64"
  return at.dtype == dtype and at or at:to(dtype)
end

local function triangle(who, row, col, offset, opts, lower)
  if row < 0 or col < 0 then raise("%s: row and col must not be negative, got %d and %d", who, row, col) end
  if opts then
    for key in next, opts do
      if key ~= "dtype" and key ~= "device" then raise("%s: unknown option '%s'; there are dtype and device", who, key) end
    end
  end
  local device = opts and opts.device
  local i = accel.arange(row, { device = device }):reshape(row, 1)
  local j = accel.arange(col, { device = device }):reshape(1, col)
  local distance = j - i
  return positions(lower and distance:le(offset) or distance:ge(offset), opts)
end

--- The positions of the lower triangle of a matrix, row by row: the row numbers, then the column numbers (from 0). offset: the last
--- diagonal that belongs to it, 0 the main one. Options: dtype, device.
--- example: accel.tril_indices(2, 3) --> { { 0, 1, 1 }, { 0, 0, 1 } }
---@param row integer
---@param col integer
---@param offset? integer
---@param opts? {dtype: accel.DType?, device: accel.Device?}
---@return accel.Tensor
function M.tril_indices(row, col, offset, opts)
  if type(offset) == "table" then offset, opts = nil, offset end
  return triangle("tril_indices", row, col, offset or 0, opts, true)
end

--- The positions of the upper triangle of a matrix, row by row: the row numbers, then the column numbers (from 0). offset: the first
--- diagonal that belongs to it, 0 the main one. Options: dtype, device.
--- example: accel.triu_indices(2, 3, 1) --> { { 0, 0, 1 }, { 1, 2, 2 } }
---@param row integer
---@param col integer
---@param offset? integer
---@param opts? {dtype: accel.DType?, device: accel.Device?}
---@return accel.Tensor
function M.triu_indices(row, col, offset, opts)
  if type(offset) == "table" then offset, opts = nil, offset end
  return triangle("triu_indices", row, col, offset or 0, opts, false)
end

--- All choices of r elements of x, a tensor of one dim, as rows: in the order of x, each element at most once, with
--- with_replacement any number of times.
--- example: accel.combinations(accel.tensor { 1, 2, 3 }) --> { { 1, 2 }, { 1, 3 }, { 2, 3 } }
--- example: accel.combinations(accel.tensor { 1, 2 }, 2, true) --> { { 1, 1 }, { 1, 2 }, { 2, 2 } }
---@param x accel.Tensor
---@param r? integer
---@param with_replacement? boolean
---@return accel.Tensor
function M.combinations(x, r, with_replacement)
  if type(r) == "table" then r, with_replacement = r.r, r.with_replacement end
  r = r or 2
  if x.ndim ~= 1 then raise("combinations: x must have one dim, got %d", x.ndim) end
  if r < 0 then raise("combinations: r must not be negative, got %d", r) end
  if r == 0 then return x:new_empty { 0 } end
  local at, list = accel.arange(#x, { device = x.device }), {}
  for i = 1, r do list[i] = at end
  local grids = accel.meshgrid(list)
  local mask
  for i = 1, r - 1 do
    local ascends = with_replacement and grids[i]:le(grids[i + 1]) or grids[i]:lt(grids[i + 1])
    mask = mask and mask:logical_and(ascends) or ascends
  end
  if not mask then return x:reshape(-1, 1) end
  local columns = {}
  for i = 1, r do columns[i] = x:index_select(1, grids[i]:masked_select(mask)) end
  return accel.stack(columns, 2)
end

--- The p-norm distance of every two rows of x, a tensor (n, m): those of row 1 to all after it first. The result has n (n - 1) / 2
--- elements.
--- example: accel.pdist(accel.tensor { { 0.0, 0 }, { 3, 4 }, { 0, 1 } }) --> { 5, 1, 4.242641 }
---@param x accel.Tensor
---@param p? number
---@return accel.Tensor
function M.pdist(x, p)
  if type(p) == "table" then p = p.p end
  p = p or 2
  if x.ndim ~= 2 then raise("pdist: x must have 2 dims, got %d", x.ndim) end
  if p < 0 then raise("pdist: p must not be negative, got %g", p) end
  local at = M.triu_indices(#x, #x, 1, { device = x.device })
  local one, other = x:index_select(1, at[1]), x:index_select(1, at[2])
  return (one - other):norm { p = p, dim = 2 }
end

return M
