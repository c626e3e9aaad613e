--- embedding and embedding_bag of nn.functional: rows of a table by their numbers (0-based values).
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

--- Scales the rows named by ids, in place, so that none has a norm above max_norm.
local function renormalise(who, weight, ids, max_norm, norm_type)
  check.number(who, "max_norm", max_norm, 0)
  local _ <close> = accel.no_grad()
  local w, flat = weight:detach(), ids:reshape(-1)
  if flat:numel() == 0 then return end
  local rows = w:index_select(1, flat)
  local norms = accel.norm(rows, norm_type or 2.0, 2, true)
  local scale = accel.where(norms:gt(max_norm), max_norm / (norms + 1e-7), 1)
  w:index_copy_(1, flat, rows * scale)
end

local embedding_arguments = arguments("embedding", { "padding_idx" }, { "max_norm" }, { "norm_type" })

--- Rows of weight: ids of any shape -> (ids' shape, D). Options: padding_idx (that row gets no gradient),
--- max_norm and norm_type = 2 (rows that are used and longer are shortened first, in place).
--- example: accel.nn.functional.embedding(accel.tensor { 1, 0 }, accel.tensor { { 1 }, { 2 } }) --> { { 2 }, { 1 } }
---@param ids accel.Tensor
---@param weight accel.Tensor
---@param ... any padding_idx, max_norm, norm_type by position or in one table
---@return accel.Tensor
function F.embedding(ids, weight, ...)
  if select("#", ...) == 0 then return accel.embedding(ids, weight) end
  local o = embedding_arguments(...)
  if o.max_norm then renormalise("embedding", weight, ids, o.max_norm, o.norm_type) end
  return accel.embedding(ids, weight, o.padding_idx)
end

local bag_arguments = arguments("embedding_bag", { "offsets" }, { "max_norm" }, { "norm_type", 2.0 },
  { "mode", "mean" }, { "per_sample_weights" }, { "include_last_offset", false }, { "padding_idx" })

--- The bag of each id, and the number of bags. offsets: the start of each bag, the first at 0.
local function bags_of(ids, offsets, include_last)
  if not tensors.is_tensor(offsets) or offsets.ndim ~= 1 then
    raise "embedding_bag: ids of rank 1 need offsets, a tensor of rank 1"
  end
  local n = offsets:numel() - (include_last and 1 or 0)
  if n < 1 then return nil, 0 end
  local starts = offsets:narrow(1, 1, n)
  local places = accel.arange(ids:numel(), { dtype = offsets.dtype, device = ids.device })
  return accel.searchsorted(starts, places, { right = true }) - 1, n, starts
end

--- Bags as rows of one width: values (n, width, D), and a mask of the counted ids, (n, width).
local function spread(rows, bag, n, starts, counted)
  local counts = accel.bincount(bag, { minlength = n })
  local width = math.max(counts:max():item(), 1)
  local dim = rows:size(2)
  local column = accel.arange(bag:numel(), { dtype = bag.dtype, device = bag.device })
    - starts:index_select(1, bag)
  local place = bag * width + column
  local dense = accel.zeros(n * width, dim, { dtype = rows.dtype, device = rows.device })
  local there = accel.zeros(n * width, { dtype = rows.dtype, device = rows.device })
  dense = dense:index_add(1, place, rows):view(n, width, dim)
  local ones = counted and counted:to(rows.dtype) or accel.ones_like(place, { dtype = rows.dtype })
  return dense, there:index_add(1, place, ones):view(n, width):gt(0)
end

--- The bags of rows (ids' shape, D) by mode: sums in the dtype of rows.
local function reduce(rows, ids, o, scale)
  local pad, dim = o.padding_idx, rows:size(-1)
  local counted = pad and ids:ne(pad < 0 and pad + o.weight:size(1) or pad)
  if scale then rows = rows * scale:unsqueeze(-1) end
  local dense, there = rows, counted
  if ids.ndim == 1 then
    local bag, n, starts = bags_of(ids, o.offsets, o.include_last_offset)
    local sums = accel.zeros(n, dim, { dtype = rows.dtype, device = rows.device })
    if n == 0 then return sums end
    if o.mode ~= "max" then
      if counted then rows = accel.where(counted:unsqueeze(-1), rows, 0) end
      sums = sums:index_add(1, bag, rows)
      if o.mode == "sum" then return sums end
      local ones = counted and counted:to(rows.dtype) or accel.ones_like(ids, { dtype = rows.dtype })
      local counts = accel.zeros(n, { dtype = rows.dtype, device = rows.device }):index_add(1, bag, ones)
      return sums / counts:clamp(1, nil):unsqueeze(2)
    end
    dense, there = spread(rows, bag, n, starts, counted)
  elseif o.mode ~= "max" then
    if counted then dense = accel.where(counted:unsqueeze(-1), dense, 0) end
    local sums = dense:sum(2)
    if o.mode == "sum" then return sums end
    return sums / (counted and counted:to(dense.dtype):sum(2, true):clamp(1, nil) or ids:size(2))
  end
  if not there then return (accel.max(dense, 2)) end
  local best = accel.max(accel.where(there:unsqueeze(-1), dense, -math.huge), 2)
  return accel.where(there:any(2, true), best, 0) -- empty bags
end

--- Sum, mean (default) or largest values of bags of rows, without the rows in memory as a result. ids (B, N): each row
--- is a bag. ids (N): offsets (B) give the start of each bag. Result (B, D), with 0 for empty bags. per_sample_weights
--- (ids' shape) multiplies the rows, for mode = "sum". padding_idx is left out of the bags. include_last_offset: the
--- last entry of offsets is the end. Options as PyTorch's.
--- example: accel.nn.functional.embedding_bag(accel.tensor { { 0, 1 } }, accel.eye(2)) --> { { 0.5, 0.5 } }
---@param ids accel.Tensor
---@param weight accel.Tensor
---@param ... any offsets, then options
---@return accel.Tensor
function F.embedding_bag(ids, weight, ...)
  local o = bag_arguments(...)
  o.weight = weight
  check.word("embedding_bag", "mode", o.mode, { "sum", "mean", "max" })
  local scale = o.per_sample_weights
  if scale and o.mode ~= "sum" then raise "embedding_bag: per_sample_weights need mode 'sum'" end
  if scale and not tensors.same_shape(scale, ids) then
    raise("embedding_bag: per_sample_weights %s must have the shape of the ids %s", tensors.shape_string(scale),
      tensors.shape_string(ids))
  end
  if ids.ndim == 2 and o.offsets then raise "embedding_bag: ids of rank 2 are bags already, without offsets" end
  if ids.ndim ~= 1 and ids.ndim ~= 2 then
    raise("embedding_bag: ids must have 1 or 2 dimensions, got shape %s", tensors.shape_string(ids))
  end
  local rows = F.embedding(ids, weight,
    { padding_idx = o.padding_idx, max_norm = o.max_norm, norm_type = o.norm_type })
  local short = o.mode ~= "max" and (rows.dtype == "bf16" or rows.dtype == "f16")
  if short then rows = rows:to "f32" end -- sums of many rows, rounded once, at the end
  local y = reduce(rows, ids, o, scale)
  return short and y:to(weight.dtype) or y
end

return F
