--- One global batch of the dispatcher: the batches that rank 0 read, split into one shard for every rank. Pure
--- functions on nested tables. accel.accelerator.dispatch uses them on rank 0.
---
--- Batches of equal size are the shards. Others are concatenated and cut into equal shards, padded with samples from
--- the start of the pass, cycling. Batches that cannot be concatenated (different shapes, strings, objects) are handed
--- over whole, one per rank, and the remaining ranks get one of these again, as padding.
local accel = require "accel"
local concatenate = require("accel.accelerator.operations.structure").concatenate
local raise = require "accel.util.raise"
local walk = require "accel.util.walk"

local M = {}

local is_tensor = accel.is_tensor

--- The rows of a batch and its kind (ways, dtypes, other extents), if it consists of tensors with equally many rows.
---@return integer? rows
---@return string? kind
local function tensor_rows(batch)
  local n, kind, uneven = nil, {}, false
  walk.visit(batch, function(leaf, path)
    if not is_tensor(leaf) or leaf.ndim == 0 or n ~= nil and leaf.shape[1] ~= n then
      uneven = true
      return true
    end
    n = leaf.shape[1]
    kind[#kind + 1] = path .. " " .. leaf.dtype .. " " .. table.concat(leaf.shape, ",", 2)
  end)
  if uneven or n == nil then return nil end
  return n, table.concat(kind, ";")
end

--- How many samples a batch has, as far as one can tell: the first extent of its first tensor, the length of a list.
---@param batch any
---@return integer
function M.rows_of(batch)
  local n = walk.visit(batch, function(leaf)
    if is_tensor(leaf) then return leaf.ndim > 0 and leaf.shape[1] or 1 end
  end)
  if n then return n end
  if not walk.is_container(batch) then return 1 end
  if rawget(batch, 1) ~= nil then return #batch end
  for _, value in walk.entries(batch) do
    if walk.is_container(value) then return M.rows_of(value) end
  end
  return 1
end

-- Cutting one batch, split_batches: besides tensors there may be lists with an entry for every row.

local function is_column(x, n)
  return #x == n and not walk.visit(x, function(leaf) return is_tensor(leaf) or nil end)
end

--- Rows first .. last of a batch with n rows. A leaf that is neither a tensor nor in a list is the same for all.
local function take(x, n, first, last, path)
  if is_tensor(x) then
    if x.ndim == 0 or x.shape[1] ~= n then
      raise("dispatch: split_batches cannot cut the batch: '%s' has the shape (%s), the batch %d rows; use "
        .. "split_batches = false or dispatch_batches = false", path, table.concat(x.shape, ", "), n)
    end
    return x:narrow(1, first, last - first + 1)
  end
  if not walk.is_container(x) then return x end
  local out = walk.empty_like(x)
  if is_column(x, n) then return table.move(x, first, last, 1, out) end
  for key, value in walk.entries(x) do walk.set(out, key, take(value, n, first, last, tostring(key))) end
  return out
end

--- Batches, given with their rows, one below the other.
local function stack(list, rows)
  local like, all = list[1], true
  if #list == 1 then return like end
  if is_tensor(like) then return accel.cat(list, 1) end
  if not walk.is_container(like) then return like end
  for i, x in ipairs(list) do all = all and is_column(x, rows[i]) end
  local out = walk.empty_like(like)
  if all then
    for _, x in ipairs(list) do table.move(x, 1, #x, #out + 1, out) end
    return out
  end
  for key in walk.entries(like) do
    local column = {}
    for i, x in ipairs(list) do column[i] = x[key] end
    walk.set(out, key, stack(column, rows))
  end
  return out
end

-- Global batches ---------------------------------------------------------------------------------

---@class accel.accelerator.GlobalBatch
---@field shards any[] one batch per rank
---@field counts integer[] rows of each
---@field valid integer[] how many of these, from the first, are not padding
---@field total integer rows that were read

--- Up to P samples from the start of a global batch, to pad the last one with. nil when they cannot be concatenated.
---@param list any[] batches, at least one
---@param P integer
---@param split boolean
---@return {batch: any, n: integer, kind: string?}?
function M.padding(list, P, split)
  local kind, n, kept = nil, 0, {}
  for i, batch in ipairs(list) do
    local rows, of = tensor_rows(batch)
    if not rows and not split or i > 1 and of ~= kind then return nil end
    n, kind, kept[i] = n + (rows or M.rows_of(batch)), of, batch
    if n >= P then break end
  end
  if n == 0 then return nil end
  local all = #kept > 1 and concatenate(kept) or kept[1]
  if n > P then all, n = take(all, n, 1, P, ""), P end
  return { batch = walk.map(all, function(x) return is_tensor(x) and x:clone() or x end), n = n, kind = kind }
end

--- P equal shards of `total` rows in one tree, padded at the end.
local function cut(all, total, P, padding, slice_fn)
  local per, counts, valid, shards = -(-total // P), {}, {}, {}
  local missing = per * P - total
  if missing > 0 then
    local list, rows = { all }, { total }
    while missing > 0 do
      local n = math.min(missing, padding.n)
      list[#list + 1], rows[#rows + 1] = take(padding.batch, padding.n, 1, n, ""), n
      missing = missing - n
    end
    all = stack(list, rows)
  end
  for r = 1, P do
    local first, last = (r - 1) * per + 1, r * per
    shards[r] = slice_fn and slice_fn(all, first, last, r - 1, P) or take(all, per * P, first, last, "")
    counts[r], valid[r] = per, math.max(0, math.min(per, total - (r - 1) * per))
  end
  return { shards = shards, counts = counts, valid = valid, total = total }
end

--- One batch for each rank.
local function whole(list, P)
  local counts, valid, shards, total = {}, {}, {}, 0
  for r = 1, P do
    local batch = list[(r - 1) % #list + 1]
    shards[r], counts[r] = batch, M.rows_of(batch)
    valid[r] = r <= #list and counts[r] or 0
    total = total + valid[r]
  end
  return { shards = shards, counts = counts, valid = valid, total = total }
end

--- One shard for every rank of the batches of a global batch: P of them, fewer at the end of the pass, one when that
--- is split.
---@param list any[]
---@param P integer
---@param o {split: boolean, joins: boolean, padding: (fun(): table?), slice_fn: function?} joins: batches may be concatenated
---@return accel.accelerator.GlobalBatch
function M.split(list, P, o)
  local total, kind, size, even = 0, nil, nil, #list == P
  local joins = o.joins or o.split
  for i, batch in ipairs(list) do
    local n, of = tensor_rows(batch)
    if n == nil and o.split then n = M.rows_of(batch) end
    joins = joins and n ~= nil and (i == 1 or of == kind)
    if not joins then break end
    even = even and (size == nil or size == n)
    total, kind, size = total + n, of, n
  end
  if P == 1 or not joins or total == 0 or even and not o.split and not o.slice_fn then return whole(list, P) end
  local all = #list > 1 and concatenate(list) or list[1]
  local padding = total % P > 0 and o.padding() or nil
  if not padding or padding.kind ~= kind then padding = { batch = all, n = total } end
  return cut(all, total, P, padding, o.slice_fn)
end

return M
