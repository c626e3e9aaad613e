--- Tensors cut into pieces at positions: parts of accel.functional.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- Extents of n nearly equal pieces of an extent; the first ones are longer.
local function sections(n, extent)
  local list = {}
  for i = 1, n do list[i] = extent // n + (i <= extent % n and 1 or 0) end
  return list
end

local function dim_of(who, x, dim)
  if x.ndim == 0 then raise("%s: a tensor of rank 0 cannot be cut", who) end
  local d = dim < 0 and dim + x.ndim + 1 or dim
  if d < 1 or d > x.ndim then raise("%s: dim %d is out of range for shape %s", who, dim, tensors.shape_string(x)) end
  return d
end

-- Views of x between the positions at, which count from 0 and may be negative or past the end.
local function between(x, at, d)
  local extent, from, list = x.shape[d], 0, {}
  local function clipped(p) return math.max(0, math.min(extent, p < 0 and p + extent or p)) end
  for i = 1, #at + 1 do
    local to = i <= #at and clipped(at[i]) or extent
    list[i] = x:narrow(d, from < extent and from + 1 or math.max(extent, 1), 0)
    if to > from then list[i] = x:narrow(d, from + 1, to - from) end
    from = i <= #at and to or from
  end
  return list
end

local function cut(who, x, where, dim)
  local d = dim_of(who, x, dim)
  if tensors.is_tensor(where) then where = where:tolist() end
  if math.type(where) == "integer" then
    if where < 1 then raise("%s: the number of pieces must be at least 1, got %d", who, where) end
    return x:split(sections(where, x.shape[d]), d)
  end
  if type(where) ~= "table" then raise("%s: expected a number of pieces or a list of positions, got %s", who, type(where)) end
  return between(x, where, d)
end

--- Pieces of x along dim: a number of nearly equal ones, of which the first are longer, or those that positions, counted from 0, cut.
--- example: #accel.tensor_split(accel.arange(7), 3) --> 3
--- example: accel.tensor_split(accel.arange(4), { 1, 3 })[2] --> { 1, 2 }
---@param x accel.Tensor
---@param indices_or_sections integer|integer[]|accel.Tensor
---@param dim integer? default 1
---@return accel.Tensor[]
function M.tensor_split(x, indices_or_sections, dim) return cut("tensor_split", x, indices_or_sections, dim or 1) end

-- hsplit, vsplit and dsplit: pieces must be equal, and the rank at least `rank`.
local function even(who, x, where, dim, rank)
  if x.ndim < rank then raise("%s: needs a tensor of rank %d or more, got shape %s", who, rank, tensors.shape_string(x)) end
  if math.type(where) == "integer" and where > 0 and x.shape[dim] % where ~= 0 then
    raise("%s: dim %d of shape %s is not a multiple of %d; use tensor_split", who, dim, tensors.shape_string(x), where)
  end
  return cut(who, x, where, dim)
end

--- Pieces side by side: along dim 2, of one dim along that. A number of equal pieces, or positions that count from 0.
--- example: accel.hsplit(accel.tensor { { 1, 2 }, { 3, 4 } }, 2)[1] --> { { 1 }, { 3 } }
---@param x accel.Tensor
---@param indices_or_sections integer|integer[]
---@return accel.Tensor[]
function M.hsplit(x, indices_or_sections) return even("hsplit", x, indices_or_sections, x.ndim > 1 and 2 or 1, 1) end

--- Pieces on top of each other, along dim 1: as hsplit.
--- example: accel.vsplit(accel.tensor { { 1, 2 }, { 3, 4 } }, 2)[2] --> { { 3, 4 } }
---@param x accel.Tensor
---@param indices_or_sections integer|integer[]
---@return accel.Tensor[]
function M.vsplit(x, indices_or_sections) return even("vsplit", x, indices_or_sections, 1, 2) end

--- Pieces along dim 3: as hsplit.
--- example: accel.dsplit(accel.ones(1, 2, 4), 2)[1].shape --> { 1, 2, 2 }
---@param x accel.Tensor
---@param indices_or_sections integer|integer[]
---@return accel.Tensor[]
function M.dsplit(x, indices_or_sections) return even("dsplit", x, indices_or_sections, 3, 3) end

return M
