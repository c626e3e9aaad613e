--- Scales and zero points of parts of a matrix, made to fit it. Used by the readers in this folder.
local packed = require "accel.models.packed"

local M = {}

local function text(shape)
  local out = {}
  for i, n in ipairs(shape) do out[i] = ("%d"):format(n) end
  return "(" .. table.concat(out, ", ") .. ")"
end

M.text = text

--- t with each row repeated `block` times along a dim, cut to n.
local function along(t, dim, block, n)
  if t.shape[dim] == n and block == 1 then return t end
  local wide = block == 1 and t or t:repeat_interleave(block, dim)
  return wide.shape[dim] == n and wide or wide:narrow(dim, 1, n)
end

--- Values for blocks of `rows` x `columns`, the last ones cut, as a tensor that multiplies one of this shape. t has one value, or the
--- grid of blocks in its last two dims.
---@param t accel.Tensor
---@param shape integer[] two dims or three
---@param rows integer
---@param columns integer
---@param what string for messages
---@return accel.Tensor
function M.blocks(t, shape, rows, columns, what)
  if t:numel() == 1 then return t:reshape(1) end
  local d = #shape
  local grid = { shape[d - 2], -(-shape[d - 1] // rows), -(-shape[d] // columns) }
  if d == 2 then table.remove(grid, 1) end
  local fits = #t.shape == #grid
  for i, n in ipairs(grid) do fits = fits and t.shape[i] == n end
  if not fits then
    packed.unfit("has %s of shape %s; blocks of %d x %d in %s need %s", what, text(t.shape), rows, columns, text(shape), text(grid))
  end
  return along(along(t, d - 1, rows, shape[d - 1]), d, columns, shape[d])
end

--- Values for groups of columns: t is [out, groups], or one value, or one for each row. index: the group of each column, otherwise groups
--- of `size` columns in order.
---@param t accel.Tensor
---@param shape integer[] [out, in]
---@param size integer?
---@param index accel.Tensor?
---@param what string
---@return accel.Tensor
function M.groups(t, shape, size, index, what)
  if t:numel() == 1 then return t:reshape(1) end
  if #t.shape == 1 then t = t:unsqueeze(2) end
  local groups = t.shape[2]
  if #t.shape ~= 2 or t.shape[1] ~= shape[1] then
    packed.unfit("has %s of shape %s for a weight of %s", what, text(t.shape), text(shape))
  end
  if groups == 1 then return t end
  if index then return t:index_select(2, M.checked_index(index, shape[2], groups)) end
  if not size or -(-shape[2] // size) ~= groups then
    packed.unfit("has %s for %d groups; %d columns in groups of %s need %s", what, groups, shape[2], tostring(size),
      size and tostring(-(-shape[2] // size)) or "group_size")
  end
  return along(t, 2, size, shape[2])
end

--- An index of groups, one for each of n columns, checked.
function M.checked_index(index, n, groups)
  if index:numel() ~= n then packed.unfit("has g_idx of %d values for %d inputs", index:numel(), n) end
  index = index:reshape(-1):to "i64"
  if n > 0 and (index:min():item() < 0 or index:max():item() >= groups) then
    packed.unfit("has g_idx beyond its %d groups", groups)
  end
  return index
end

return M
