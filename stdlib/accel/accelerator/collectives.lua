--- Methods of Accelerator: gather, gather_for_metrics, gather_object, reduce, broadcast, pad_across_processes.
local accel = require "accel"
local check = require "accel.util.check"
local dist = require "accel.dist"
local exchange = require "accel.accelerator.operations.exchange"
local gathered = require "accel.metrics.gathered"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local verify = require "accel.dist.verify"
local walk = require "accel.util.walk"

local M = {}

local is_tensor = accel.is_tensor

--- The tensors of all ranks, joined along the first dim in rank order, on every rank.
--- example: accel.Accelerator {}:gather(accel.ones(2)) --> { 1, 1 }
---@param tensor any nested tensors of the same shapes on all ranks
---@return any
function M.gather(_, tensor) return exchange.gather(tensor) end

--- The entries of the lists of all ranks as one list.
--- example: accel.Accelerator {}:gather_object { "a" } --> { "a" }
---@param object any[]
---@return any[]
function M.gather_object(_, object) return exchange.gather_object(object) end

--- The tensors of rank from_process on every rank.
--- example: accel.Accelerator {}:broadcast(accel.ones(2)) --> { 1, 1 }
---@param tensor any
---@param from_process? integer 0
---@return any
function M.broadcast(_, tensor, from_process, ...)
  check.surplus("broadcast", ...)
  return exchange.broadcast(tensor, from_process)
end

--- Reduces each tensor over the ranks ("sum", "mean", "max" or "none"), then multiplies it by scale.
--- example: accel.Accelerator {}:reduce(accel.ones(2), { scale = 0.5 }) --> { 0.5, 0.5 }
---@param tensor any
---@param reduction? string "sum"
---@param scale? number 1
---@param opts? {reduction: string?, scale: number?}
---@return any
function M.reduce(_, tensor, reduction, scale, opts, ...)
  check.surplus("reduce", ...)
  return exchange._reduce("sum", tensor, reduction, scale, opts)
end

--- The tensors filled up along dim to the largest extent of any rank.
--- example: accel.Accelerator {}:pad_across_processes(accel.ones(2), { dim = 1, pad_first = true }) --> { 1, 1 }
---@param tensor any
---@param dim? integer from 1, or from -1 for the last (default 1)
---@param pad_index? number 0
---@param pad_first? boolean false
---@param opts? {dim: integer?, pad_index: number?, pad_first: boolean?}
---@return any
function M.pad_across_processes(_, tensor, dim, pad_index, pad_first, opts, ...)
  check.surplus("pad_across_processes", ...)
  return exchange.pad_across_processes(tensor, dim, pad_index, pad_first, opts)
end

-- gather_for_metrics -----------------------------------------------------------------------------

local WHO <const> = "gather_for_metrics"
local ADVICE <const> = "it takes one row for every sample of the batch: give { batch = } when it belongs to another "
  .. "batch than the last, or use gather or reduce for values of a whole batch, and accel.metrics over batches"

--- If one rank has no batch, the other ranks cannot gather inside the loop, because that rank does not take part.
local function check_presence(rows)
  local absent = {}
  for r, n in ipairs(rows.counts or {}) do
    if n == 0 then absent[#absent + 1] = ("%d"):format(r - 1) end
  end
  if #absent == 0 then return end
  raise("%s: rank%s %s got no batch in this round and cannot take part; use accel.metrics, which gathers once after "
    .. "the loop, or even_batches = true", WHO, #absent > 1 and "s" or "", table.concat(absent, ", "))
end

--- The known row counts of the batch. nil, or without counts, if every rank counts its own rows.
local function rows_of(self, batch)
  local state = self.gradient_state
  local rows = state:rows(batch)
  if rows then
    check_presence(rows)
  elseif batch ~= nil and state:rows() then
    raise("%s: batch must be an unchanged batch of a prepared loader; got %s", WHO,
      check.shown(batch))
  end
  return rows
end

local function has_tensor(x)
  return walk.visit(x, function(leaf) return is_tensor(leaf) or nil end) or false
end

local function is_list(x) return next(x) == nil or rawget(x, 1) ~= nil end

-- Accelerator -> position in the tree -> the meaning of lists there in unambiguous batches: samples, or columns by
-- their number.
local lists_before = setmetatable({}, { __mode = "k" })

--- Whether the entries of a list are the columns of a batch with `rows` rows, as of a pair { logits, labels }: all are
--- tensors with so many rows. A list with exactly that many entries may also be samples. Its meaning is then the one of
--- earlier batches, and unknown without one (nil).
local function is_columns(self, x, rows, path)
  local before = lists_before[self] or {}
  lists_before[self] = before
  local seen = before[path] or {}
  before[path] = seen
  local columns = rows ~= nil and #x > 0
  for _, value in ipairs(x) do
    columns = columns and is_tensor(value) and value.ndim > 0 and value.shape[1] == rows
  end
  if columns and #x == rows then
    if seen[#x] == seen.samples then return nil end
    return seen[#x] or false
  end
  if columns then seen[#x] = true elseif #x == rows then seen.samples = true end
  return columns
end

--- The parts of a tree that have rows: tensors, and lists without tensors inside, whose entries are samples. With
--- as_objects, lists of anything. Other leaves are parts without rows. Returns a function that gives the tree with the
--- values that its parts have then.
---@param self accel.Accelerator
---@param x any
---@param as_objects boolean
---@param rows integer? of the batch on this rank
---@param parts table[] they are appended here
---@param path string
---@return fun(): any
local function parts_of(self, x, as_objects, rows, parts, path)
  local part
  if is_tensor(x) then
    local n = x.ndim > 0 and x.shape[1] or nil
    if as_objects and n then
      part = { value = x:detach():unbind(1), path = path, objects = true, n = n }
    else
      part = { value = as_objects and x or x:detach(), path = path, objects = as_objects, n = n }
    end
  elseif not walk.is_container(x) then
    part = { value = x, path = path, objects = true }
  elseif is_list(x) then
    local columns
    if as_objects then columns = is_columns(self, x, rows, path) else columns = has_tensor(x) end
    if not columns then part = { value = x, path = path, objects = true, n = #x, unclear = columns == nil } end
  end
  if part then
    parts[#parts + 1] = part
    return function() return part.value end
  end
  local entries, out = {}, walk.empty_like(x)
  for key, value in walk.entries(x) do
    local at = path == "" and tostring(key) or path .. "." .. tostring(key)
    entries[#entries + 1] = { key, parts_of(self, value, as_objects, rows, parts, at) }
  end
  return function()
    for _, entry in ipairs(entries) do walk.set(out, entry[1], entry[2]()) end
    return out
  end
end

--- Whether the ranks have unequally many rows of a batch: then a list may be clear on one rank and not on another.
local function is_uneven(counts)
  for _, n in ipairs(counts) do
    if n ~= counts[1] then return true end
  end
  return false
end

--- Takes over from other ranks the meaning of lists of this tree: it is clear on a rank with more or fewer rows.
local function share_lists(self, x, rows)
  parts_of(self, x, true, rows, {}, "")
  local own = lists_before[self] or {}
  lists_before[self] = own
  for _, of_rank in ipairs(dist.all_gather_object(own)) do
    for path, seen in next, of_rank do
      own[path] = own[path] or {}
      for key, value in next, seen do own[path][key] = value end
    end
  end
end

--- One line about a part, and whether it is wrong. It omits the number of rows, which may differ between ranks.
local function line_of(part, expected)
  local at = part.path == "" and "" or " at '" .. part.path .. "'"
  local shape, what
  if part.unclear then
    return ("a list%s of %d tensors with %d rows each: its samples, or columns? say { a = ..., b = ... } for columns, and "
      .. "{ { sample }, ... } for samples"):format(at, part.n, part.n), true
  end
  if is_tensor(part.value) then
    shape = tensors.shape_string(part.value)
    what = part.value.dtype .. " "
  elseif part.n then
    shape, what = ("of %d"):format(part.n), "a list "
  else
    return ("%s%s, which has no rows"):format(check.shown(part.value), at):gsub("\n", " "), true
  end
  if not part.n then return ("%s%s%s, which has no rows"):format(what, shape, at), true end
  if expected and part.n ~= expected then
    return ("%s%s%s, but %d row%s in its batch"):format(what, shape, at, expected, expected == 1 and "" or "s"), true
  end
  if is_tensor(part.value) then shape = shape:gsub("^%(%d+", "(rows") else shape = "of rows" end
  return what .. shape .. at, false
end

--- Numbers of rows of every part on every rank: counts[part][rank + 1].
local function exchange_sizes(parts, axis)
  local P, n = axis.size, #parts
  local own, all, counts = {}, accel.empty(P * n, { dtype = "i64", device = "cpu" }), {}
  for k, part in ipairs(parts) do own[k] = part.n end
  dist.all_gather_into_tensor(all, accel.tensor(own, { dtype = "i64", device = "cpu" }), { group = axis.group })
  local flat = all:tolist()
  for k = 1, n do
    counts[k] = {}
    for r = 1, P do counts[k][r] = flat[(r - 1) * n + k] end
  end
  return counts
end

--- Replaces the value of every part by the value over all ranks.
local function gather_parts(parts, counts, axis)
  local list, sizes, objects = {}, {}, {}
  for k, part in ipairs(parts) do
    if part.objects then
      objects[#objects + 1] = part.value
    else
      list[#list + 1], sizes[#list + 1] = part.value, counts[k]
    end
  end
  list = exchange.gather_rows(list, sizes, axis.group)
  local all = #objects > 0 and dist.all_gather_object(objects, { group = axis.group }) or {}
  local t, o = 0, 0
  for _, part in ipairs(parts) do
    if part.objects then
      o = o + 1
      part.value = {}
      for _, of_rank in ipairs(all) do table.move(of_rank[o], 1, #of_rank[o], #part.value + 1, part.value) end
    else
      t = t + 1
      part.value = list[t]
    end
  end
end

--- Gathers outputs of one batch from all ranks, in the order of the data set, without padding rows. You can call it any number of
--- times per batch, and after the loop. Tensors must have the batch's rows as their first dim. Lists of other objects must have one
--- entry per row.
--- example: accel.Accelerator {}:gather_for_metrics { logits = accel.ones(2), text = { "a", "b" } }
---   --> { logits = { 1, 1 }, text = { "a", "b" } }
---@param input_data any a tensor, a list with one object per row, or a table of these
---@param use_gather_object? boolean gathers each row as an object: tensors of any shape are split into rows, and the results are lists
---@param opts? {use_gather_object: boolean?, batch: any} batch: the batch that the outputs belong to, by default the last one
---@return any
function M.gather_for_metrics(self, input_data, use_gather_object, opts, ...)
  check.surplus("gather_for_metrics", ...)
  if type(use_gather_object) == "table" and opts == nil then use_gather_object, opts = nil, use_gather_object end
  if use_gather_object ~= nil and type(use_gather_object) ~= "boolean" then
    raise("%s: takes one value, then options, got %s as the second; pass several in a table: "
      .. "gather_for_metrics { predictions, targets }", WHO, is_tensor(use_gather_object) and "a tensor"
      or check.shown(use_gather_object))
  end
  local o = options(WHO, opts, { use_gather_object = false, batch = options.none })
  if use_gather_object ~= nil then o.use_gather_object = use_gather_object end
  -- over the ranks that read different data
  local axis = self._parallel and self._parallel:axis "dp" or { size = dist.get_world_size(), rank = dist.get_rank() }
  local rows, P, me = rows_of(self, o.batch), axis.size, axis.rank + 1
  local known, parts, lines, wrong = rows ~= nil and rows.counts ~= nil, {}, {}, nil
  if known and o.use_gather_object and is_uneven(rows.counts) then share_lists(self, input_data, rows.counts[me]) end
  local assemble = parts_of(self, input_data, o.use_gather_object, known and rows.counts[me] or nil, parts, "")
  for k, part in ipairs(parts) do
    local bad
    lines[k], bad = line_of(part, known and rows.counts[me] or nil)
    wrong = wrong or bad and lines[k]
  end
  verify(WHO, "tensor", lines, ADVICE)
  if wrong then raise("%s: got %s; %s", WHO, wrong, ADVICE) end
  if rows and not rows.full and (not known and rows.valid[me] == 0 or known and rows.valid[me] < rows.counts[me]) then
    for _, part in ipairs(parts) do
      local n = rows.valid[me]
      part.value = part.objects and table.move(part.value, 1, n, 1, {}) or part.value:narrow(1, 1, n)
      part.n = n
    end
  end
  if P > 1 then
    local counts = {}
    if known then
      for k in ipairs(parts) do counts[k] = rows.valid end
    else
      counts = exchange_sizes(parts, axis)
    end
    gather_parts(parts, counts, axis)
  end
  return gathered.mark(assemble())
end

return M
