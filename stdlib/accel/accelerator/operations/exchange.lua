--- Collectives on nested tables of tensors and objects: gather, broadcast, reduce, pad_across_processes. Part of
--- accel.accelerator.operations. collectives.lua makes methods of Accelerator from them.
---
--- Before any bytes move, the ranks compare their structure, dtypes and shapes in one small collective. On a mismatch
--- every rank raises the same message with the ranks' values. Tensors of one dtype then travel together, large ones as
--- they lie. Inputs are never modified. Results have no history.
local accel = require "accel"
local check = require "accel.util.check"
local coalesce = require "accel.dist.coalesce"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local verify = require "accel.dist.verify"
local walk = require "accel.util.walk"

local M = {}

local is_tensor = accel.is_tensor
local ALONE <const> = 1 << 18 -- bytes from which a tensor travels by itself

-- ---- agreement ----

--- "f32 (2, 3) at 'x'": one rank's description of a tensor.
local function described(t, path)
  return ("%s %s%s"):format(t.dtype, tensors.shape_string(t), path == "" and "" or " at '" .. path .. "'")
end

--- The tensors of a tree, detached, which all ranks have in the same order and, by `describe`, of the same kind. Other
--- leaves are an error on all ranks.
---@param who string
---@param data any
---@param advice string ends the message of ranks that differ
---@param describe? fun(t: accel.Tensor, path: string): string
---@return accel.Tensor[]
---@return string[] paths
function M.agreed(who, data, advice, describe)
  local list, paths, lines = {}, {}, {}
  local bad, bad_path
  describe = describe or described
  walk.visit(data, function(leaf, path)
    if is_tensor(leaf) then
      list[#list + 1], paths[#list + 1] = leaf:detach(), path
      lines[#lines + 1] = describe(leaf, path)
    else
      if bad_path == nil then bad, bad_path = leaf, path end
      local at = path == "" and "" or " at '" .. path .. "'"
      lines[#lines + 1] = (("%s%s, no tensor"):format(check.shown(leaf), at):gsub("\n", " "))
    end
  end)
  verify(who, "tensor", lines, advice)
  if bad_path ~= nil then walk.refuse(who, bad, bad_path) end
  return list, paths
end

-- ---- gather ----

local function product(shape)
  local n = 1
  for k = 2, #shape do n = n * shape[k] end
  return n
end

--- Rows of several tensors, which have dims, of all ranks one below the other in rank order: rank r brings counts[k][r]
--- rows of tensor k. Everything but the first extents is the same on all ranks, and so is counts.
---@param list accel.Tensor[]
---@param counts integer[][]
---@param group? accel.dist.Group
---@return accel.Tensor[]
function M.gather_rows(list, counts, group)
  local P, out, packs, order = dist.get_world_size(group), {}, {}, {}
  local function exchange(dtype, device, sizes, mine)
    local total, parts = 0, {}
    for r = 1, P do total = total + sizes[r] end
    local all, at = flat(total, dtype, device), 1
    for r = 1, P do
      parts[r] = all:narrow(1, at, sizes[r])
      at = at + sizes[r]
    end
    if total > 0 then dist.all_gather(parts, mine, { group = group }) end
    return all, parts
  end
  for k, t in ipairs(list) do
    local row, sizes, rows, biggest = product(t.shape), {}, 0, 0
    for r = 1, P do
      sizes[r] = counts[k][r] * row
      rows, biggest = rows + counts[k][r], math.max(biggest, sizes[r])
    end
    local shape = t.shape
    shape[1] = rows
    if biggest * t:element_size() >= ALONE then
      out[k] = exchange(t.dtype, t.device, sizes, t:contiguous():view(-1)):view(shape)
    else
      local kind = t.dtype .. " " .. tostring(t.device)
      local pack = packs[kind]
      if not pack then
        pack = { dtype = t.dtype, device = t.device }
        packs[kind], order[#order + 1] = pack, pack
      end
      pack[#pack + 1] = { k = k, sizes = sizes, shape = shape, flat = t:reshape(-1) }
    end
  end
  for _, pack in ipairs(order) do
    local mine, sizes = {}, {}
    for i, item in ipairs(pack) do mine[i] = item.flat end
    for r = 1, P do
      sizes[r] = 0
      for _, item in ipairs(pack) do sizes[r] = sizes[r] + item.sizes[r] end
    end
    local all, parts = exchange(pack.dtype, pack.device, sizes, #mine == 1 and mine[1] or accel.cat(mine, 1))
    if #pack == 1 then
      out[pack[1].k] = all:view(pack[1].shape)
    else
      local at = {}
      for r = 1, P do at[r] = 1 end
      for _, item in ipairs(pack) do
        local pieces = {}
        for r = 1, P do
          pieces[r] = parts[r]:narrow(1, at[r], item.sizes[r])
          at[r] = at[r] + item.sizes[r]
        end
        out[item.k] = accel.cat(pieces, 1):view(item.shape)
      end
    end
  end
  return out
end

--- The tensors of all ranks, joined along the first dim in rank order, on every rank. One without dims is one row.
--- example: accel.accelerator.gather { a = accel.ones(2), b = accel.tensor(3) } --> { a = { 1, 1 }, b = { 3 } }
---@param tensor any nested tensors of the same shapes on all ranks
---@return any
function M.gather(tensor, ...)
  check.surplus("gather", ...)
  local list = M.agreed("gather", tensor, "make the shapes equal by pad_across_processes, or gather what belongs to a "
    .. "batch by gather_for_metrics, and objects by gather_object")
  local P, counts = dist.get_world_size(), {}
  for k, t in ipairs(list) do
    if t.ndim == 0 then t = t:view(1) end
    list[k], counts[k] = t, {}
    for r = 1, P do counts[k][r] = t.shape[1] end
  end
  return walk.rebuild(tensor, P == 1 and list or M.gather_rows(list, counts))
end

--- The entries of the lists of all ranks as one list, in rank order, on every rank.
--- example: accel.accelerator.gather_object { "a", "b" } --> { "a", "b" }
---@param object any[] plain data and tensors
---@return any[]
function M.gather_object(object, ...)
  check.surplus("gather_object", ...)
  if type(object) ~= "table" then
    raise("gather_object: expected a list, got %s; put a single object into { }", check.shown(object))
  end
  if dist.get_world_size() == 1 then return object end
  local all = {}
  for _, list in ipairs(dist.all_gather_object(object)) do
    for _, item in ipairs(list) do all[#all + 1] = item end
  end
  return all
end

-- ---- broadcast ----

--- The options of a call that may have `first` before the table of named ones.
local function named(who, declared, ...)
  local positional, opts, names = {}, nil, declared.order
  for i = 1, #names do
    local value = select(i, ...)
    if type(value) == "table" and opts == nil then
      opts = value
    elseif value ~= nil then
      positional[names[i]] = value
    end
  end
  local last = select(#names + 1, ...)
  if last ~= nil then opts = last end
  local o = options(who, opts, declared.keys)
  for name, value in next, positional do
    if opts and opts[name] ~= nil then raise("%s: %s is given twice", who, name) end
    if type(value) ~= type(declared.keys[name]) then
      raise("%s: %s must be a %s, got %s", who, name, type(declared.keys[name]), check.shown(value))
    end
    o[name] = value
  end
  return o
end

local function rank_of(who, rank)
  local P = dist.get_world_size()
  if math.type(rank) ~= "integer" or rank < 0 or rank >= P then
    raise("%s: from_process = %s is not one of the %d ranks, which count from 0", who, tostring(rank), P)
  end
  return rank
end

local BROADCAST = { order = { "from_process" }, keys = { from_process = 0 } }

--- The tensors of rank from_process on every rank. The other ranks' tensors give the shapes.
--- example: accel.accelerator.broadcast { accel.ones(2) } --> { { 1, 1 } }
---@param tensor any
---@param from_process? integer 0
---@param opts? {from_process: integer?}
---@return any
function M.broadcast(tensor, from_process, opts, ...)
  check.surplus("broadcast", ...)
  local o = named("broadcast", BROADCAST, from_process, opts)
  local from = rank_of("broadcast", o.from_process)
  local list = M.agreed("broadcast", tensor, "let the others bring tensors of the sender's shapes, or use "
    .. "broadcast_object_list")
  for k, t in ipairs(list) do list[k] = t:clone() end
  if dist.get_world_size() > 1 then coalesce.broadcast(list, from) end
  return walk.rebuild(tensor, list)
end

--- Puts the objects of rank from_process into the lists of all ranks. Returns the list.
--- example: accel.accelerator.broadcast_object_list { "a", { 2 } } --> { "a", { 2 } }
---@param object_list any[]
---@param from_process? integer 0
---@param opts? {from_process: integer?}
---@return any[]
function M.broadcast_object_list(object_list, from_process, opts, ...)
  check.surplus("broadcast_object_list", ...)
  local o = named("broadcast_object_list", BROADCAST, from_process, opts)
  dist.broadcast_object_list(object_list, rank_of("broadcast_object_list", o.from_process))
  return object_list
end

--- Rank 0's tensor, on every rank. The others pass nil.
--- example: accel.accelerator.copy_tensor_to_devices(accel.ones(2)) --> { 1, 1 }
---@param tensor? accel.Tensor
---@return accel.Tensor
function M.copy_tensor_to_devices(tensor, ...)
  check.surplus("copy_tensor_to_devices", ...)
  local main = dist.get_rank() == 0
  local head = main and { is_tensor(tensor) and { { table.unpack(tensor.shape) }, tensor.dtype } or false } or {}
  dist.broadcast_object_list(head, 0)
  if not head[1] then raise("copy_tensor_to_devices: rank 0 must give a tensor; its value is none") end
  local t = main and tensor:detach():clone() or accel.empty(head[1][1], { dtype = head[1][2] })
  dist.broadcast(t, 0)
  return t
end

-- ---- reduce ----

local REDUCTIONS = { sum = "sum", mean = "sum", max = "max" }

--- Each tensor reduced over the ranks, on every rank, then multiplied by scale. reduction: "sum", "mean", "max", or
--- "none" to keep every rank's own. Means of integers and of bools are floats. A "sum" of bools is their or.
--- example: accel.accelerator.reduce(accel.tensor { 1, 2 }, "sum", 0.5) --> { 0.5, 1 }
---@param tensor any
---@param reduction? string "mean"
---@param scale? number 1
---@param opts? {reduction: string?, scale: number?}
---@return any
function M.reduce(tensor, reduction, scale, opts, ...)
  check.surplus("reduce", ...)
  return M._reduce("mean", tensor, reduction, scale, opts)
end

--- reduce with the default that the caller has.
function M._reduce(default, tensor, ...)
  local o = named("reduce", { order = { "reduction", "scale" }, keys = { reduction = default, scale = 1 } }, ...)
  check.word("reduce", "reduction", o.reduction, { "sum", "mean", "max", "none" })
  local list = M.agreed("reduce", tensor, "give tensors of the same shapes; equalize lengths by "
    .. "pad_across_processes")
  local P, factor = dist.get_world_size(), o.scale
  for k, t in ipairs(list) do list[k] = t:clone() end
  if P > 1 and o.reduction ~= "none" then
    local op = REDUCTIONS[o.reduction]
    for k, t in ipairs(list) do -- the sum of bools is their or
      if o.reduction == "mean" and t.dtype == "bool" then list[k] = t:to "f32" end
    end
    coalesce.each(list, function(t) dist.all_reduce(t, op) end)
  end
  if factor ~= 1 or o.reduction == "mean" then
    for k, t in ipairs(list) do
      if o.reduction == "mean" and (P > 1 or not tensors.is_floating(t.dtype)) then t = t / P end
      list[k] = factor == 1 and t or t * factor
    end
  end
  return walk.rebuild(tensor, list)
end

-- ---- pad_across_processes ----

local PAD = { order = { "dim", "pad_index", "pad_first" }, keys = { dim = 1, pad_index = 0, pad_first = false } }

--- The tensors filled with pad_index along dim to the largest extent of any rank, at the end or in front. A tensor that
--- lacks the dim stays as it is.
--- example: accel.accelerator.pad_across_processes(accel.ones(2)) --> { 1, 1 }
---@param tensor any
---@param dim? integer from 1, or from -1 for the last (default 1)
---@param pad_index? number 0
---@param pad_first? boolean
---@param opts? {dim: integer?, pad_index: number?, pad_first: boolean?}
---@return any
function M.pad_across_processes(tensor, dim, pad_index, pad_first, opts, ...)
  check.surplus("pad_across_processes", ...)
  local who = "pad_across_processes"
  local o = named(who, PAD, dim, pad_index, pad_first, opts)
  dim = check.integer(who, "dim", o.dim)
  if dim == 0 then raise("%s: dims count from 1, or from -1 for the last; there is no dim 0", who) end
  local list = M.agreed(who, tensor, "bring the same number of tensors, of the same dtypes and numbers of dims",
    function(t, path)
      return ("%s with %d dims%s"):format(t.dtype, t.ndim, path == "" and "" or " at '" .. path .. "'")
    end)
  local sizes, at = {}, {}
  for k, t in ipairs(list) do
    local d = dim > 0 and dim or t.ndim + 1 + dim
    if d >= 1 and d <= t.ndim then
      sizes[#sizes + 1], at[k] = t.shape[d], { d, #sizes + 1 }
    end
  end
  if #sizes == 0 or dist.get_world_size() == 1 then return walk.rebuild(tensor, list) end
  local longest = accel.tensor(sizes, { dtype = "i64", device = "cpu" })
  dist.all_reduce(longest, "max")
  longest = longest:tolist()
  for k, t in ipairs(list) do
    local d = at[k] and at[k][1]
    local add = d and longest[at[k][2]] - t.shape[d] or 0
    if add > 0 then
      local shape = t.shape
      shape[d] = add
      local filler = accel.full(shape, o.pad_index, { dtype = t.dtype, device = t.device })
      list[k] = accel.cat(o.pad_first and { filler, t } or { t, filler }, d)
    end
  end
  return walk.rebuild(tensor, list)
end

return M
