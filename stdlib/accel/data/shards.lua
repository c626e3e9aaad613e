--- Shards of a pass: which part of the data each of several ranks reads. data.BatchSamplerShard cuts the order of a
--- batch sampler, data.IterableDatasetShard a stream. All of it is computed without communication: a shard is a pure
--- function of (order, ranks, rank), so every rank also knows the others' shards and padding. Prepared loaders
--- (accel.accelerator) are made of the parts below.
---
--- Ranks take turns: of each global batch rank r has rows r * size .. (r + 1) * size - 1. The description of a global
--- batch is its Rows: { counts =, valid =, full = }, lists over the ranks from rank 0: the rows of each, how many of
--- these, always the first ones, are not padding, and whether all are equal and valid.
local check = require "accel.util.check"
local class = require "accel.util.class"
local IterableDataset = require "accel.data.iterable_dataset"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local samplers = require "accel.data.samplers"
local stream = require "accel.data.stream"

local M = {}

-- ---- the description of a global batch ----

local full = {} -- ranks -> rows of a rank -> Rows, shared by all full global batches

--- The Rows of a global batch of `ranks` ranks with `count` rows each, without padding.
---@param count integer
---@param ranks integer
---@return table
function M.full_rows(count, ranks)
  local of_ranks = full[ranks]
  if not of_ranks then
    of_ranks = {}
    full[ranks] = of_ranks
  end
  local rows = of_ranks[count]
  if not rows then
    local counts = {}
    for r = 1, ranks do counts[r] = count end
    rows = { counts = counts, valid = counts, full = true }
    of_ranks[count] = rows
  end
  return rows
end

--- The Rows of a last global batch with `left` < size * ranks samples. even: padded to `size` rows on every rank.
---@param left integer
---@param size integer
---@param ranks integer
---@param even boolean
---@return table
function M.tail_rows(left, size, ranks, even)
  if ranks == 1 and not even then return M.full_rows(left, 1) end
  local counts, valid = {}, {}
  for r = 0, ranks - 1 do
    valid[r + 1] = math.max(0, math.min(size, left - r * size))
    counts[r + 1] = even and size or valid[r + 1]
  end
  return { counts = counts, valid = valid, full = false } -- the last rank always lacks some
end

--- Global batches of a pass over n samples, and in how many of them this rank has a batch.
---@param n integer
---@param size integer rows of a rank's batch
---@param ranks integer
---@param rank integer
---@param even boolean
---@param drop boolean
---@return integer global_batches
---@return integer own
function M.measure(n, size, ranks, rank, even, drop)
  local total = size * ranks
  if drop then return n // total, n // total end
  local global_batches = -(-n // total)
  local own = global_batches
  if not even and global_batches > 0 and n - (global_batches - 1) * total <= rank * size then
    own = global_batches - 1
  end
  return global_batches, own
end

--- How many rows a rank's batch has: `batch_size`, or an equal part of it with split.
---@return integer
function M.part_of(who, batch_size, ranks, split)
  if not split then return batch_size end
  if batch_size % ranks ~= 0 then
    raise("%s: split_batches cannot cut batches of %d samples into %d equal parts, one for each process; "
      .. "use a batch_size that %d divides, or split_batches = false", who, batch_size, ranks, ranks)
  end
  return batch_size // ranks
end

-- ---- plans: a rank's part of one pass ----
-- Fields: global_batches, own (those in which this rank has a batch). Fields: global_batches, own (those with a batch
-- for this rank). Fields: global_batches, own (those with a batch for this rank). Fields: global_batches, own (those
-- with a batch for this rank). Methods, for global batch g from 0: batch(g), the positions; rows(g); row0(g), the
-- offset of its first row among the rows of the pass over all ranks.

--- Batches are pieces of one sequence of n samples, from sample `start` on. `append` copies a piece of it.
local SampleShard = {}
SampleShard.__index = SampleShard

local function append_range(_, out, at, first, count)
  for i = 0, count - 1 do out[at + i] = first + i + 1 end
end

local function append_order(self, out, at, first, count)
  table.move(self.order, first + 1, first + count, at, out)
end

local function append_batches(self, out, at, first, count)
  local order, length = self.order, self.length
  for i = 0, count - 1 do
    local q = first + i
    out[at + i] = order[q // length + 1][q % length + 1]
  end
end

function SampleShard:batch(g)
  local n, first = self.n, self.start + g * self.total + self.rank * self.size
  local count = self.even and self.size or math.min(self.size, n - first)
  local out, at, from = {}, 1, first % n
  while at <= count do -- padding begins with the first samples of the pass, over and over
    local stretch = math.min(count - at + 1, n - from)
    self:append(out, at, from, stretch)
    at, from = at + stretch, 0
  end
  return out
end

function SampleShard:rows(g)
  local left = self.n - self.start - g * self.total
  if left >= self.total then return M.full_rows(self.size, self.ranks) end
  return M.tail_rows(left, self.size, self.ranks, self.even)
end

function SampleShard:row0(g) return self.start + g * self.total + self.rank * self.size end

--- Batches are the batch sampler's, of any sizes. Padding is whole batches.
local BatchShard = {}
BatchShard.__index = BatchShard

--- Batch k of a pass, from 0, padding included.
local function whole(self, k) return self.order[k % #self.order + 1] end

function BatchShard:batch(g) return whole(self, g * self.ranks + self.rank) end

function BatchShard:rows(g)
  local counts, valid, equal, m = {}, {}, true, #self.order
  for r = 0, self.ranks - 1 do
    local k = g * self.ranks + r
    counts[r + 1] = (k < m or self.even) and #whole(self, k) or 0
    valid[r + 1] = k < m and counts[r + 1] or 0
    equal = equal and k < m and counts[r + 1] == counts[1]
  end
  return equal and M.full_rows(counts[1], self.ranks) or { counts = counts, valid = valid, full = false }
end

function BatchShard:row0(g)
  local k, last = self.counted, g * self.ranks + self.rank
  if k > last then k, self.before = 0, 0 end
  for i = k, last - 1 do self.before = self.before + #whole(self, i) end
  self.counted = last
  return self.before
end

-- ---- batch samplers ----

--- A batch sampler for one of several processes. Whole batches in turn, or an equal part of each with split_batches.
--- even_batches: the last global batch is filled with samples from the beginning of the pass, so that all ranks have
--- batches of the same sizes. Without it the last ranks have shorter batches or fewer. A batch sampler without a
--- batch_size, or with batches of other sizes, is shared out in whole batches, and whole batches are repeated.
--- example: local all = accel.data.BatchSampler(accel.data.SequentialSampler(5), 2)
---   return accel.data.BatchSamplerShard(all, 2, 1):order(0) --> { { 3, 4 }, { 2, 3 } }
---@class accel.data.BatchSamplerShard : accel.data.Sampler
---@field batch_sampler table
---@field batch_size integer? rows of a batch
---@field total_batch_size integer? rows of the batches of all processes in a global batch
---@field num_processes integer
---@field process_index integer
---@field split_batches boolean
---@field even_batches boolean may be set between passes
---@field drop_last boolean
M.BatchSamplerShard = samplers.Sampler:extend("accel.data.BatchSamplerShard")

---@param batch_sampler table
---@param num_processes? integer 1
---@param process_index? integer 0
---@param opts? {split_batches: boolean?, even_batches: boolean?}
function M.BatchSamplerShard:init(batch_sampler, num_processes, process_index, opts)
  local who = "BatchSamplerShard"
  local o = options(who, opts, { split_batches = false, even_batches = true })
  if not samplers.Sampler.is(batch_sampler) then
    raise("%s: batch_sampler must have the methods len and order, got %s", who, check.shown(batch_sampler))
  end
  local ranks = check.positive(who, "num_processes", num_processes or 1)
  local rank = check.count(who, "process_index", process_index or 0)
  if rank >= ranks then raise("%s: process_index is %d, there are %d processes, from 0", who, rank, ranks) end
  self.batch_sampler, self.num_processes, self.process_index = batch_sampler, ranks, rank
  self.split_batches, self.even_batches = o.split_batches, o.even_batches
  self.drop_last, self.seed = batch_sampler.drop_last or false, batch_sampler.seed
  local length = batch_sampler.batch_size
  if length ~= nil then
    self.batch_size = M.part_of(who, check.positive(who, "batch_sampler.batch_size", length), ranks, o.split_batches)
    self.total_batch_size = self.batch_size * ranks
  elseif o.split_batches and ranks > 1 then
    raise("%s: split_batches needs the batch_size of the batch sampler, and it has none; "
      .. "use split_batches = false, which shares out whole batches", who)
  end
  self.plain = class.of(batch_sampler) == samplers.BatchSampler
end

--- How many batches the batch sampler has, before they are shared out.
--- example: local all = accel.data.BatchSampler(accel.data.SequentialSampler(8), 2)
---   return accel.data.BatchSamplerShard(all, 2, 1):total_length() --> 4
---@return integer
function M.BatchSamplerShard:total_length() return self.batch_sampler:len() end

--- Samples of a pass, before any are dropped or repeated. nil if only the pass itself can determine it.
---@return integer?
function M.BatchSamplerShard:samples()
  local inner = self.batch_size and self.batch_sampler.sampler
  return samplers.Sampler.is(inner) and inner:len() or nil
end

local function count_batches(self, epoch, seed, start)
  local ranks, rank = self.num_processes, self.process_index
  if self.plain then
    local n = self.batch_sampler.sampler:len() - start
    local _, own = M.measure(n, self.batch_size, ranks, rank, self.even_batches, self.drop_last)
    return own
  end
  if start > 0 then return self:plan(epoch or 0, seed or 0, start).own end
  local m = self.batch_sampler:len()
  if self.split_batches and ranks > 1 then
    if self.even_batches or self.drop_last then return m end
    return self:plan(epoch or 0, seed or 0).own -- the size of the last batch decides
  end
  if self.drop_last then return m // ranks end
  return self.even_batches and -(-m // ranks) or (m - rank + ranks - 1) // ranks
end

--- Batches of this process in a pass: as many as order returns.
---@param epoch? integer of the pass, for batch samplers whose last batch is not always of the same size
---@param seed? integer
---@param start? integer samples at the beginning of the pass that are left out: see plan
---@return integer
function M.BatchSamplerShard:len(epoch, seed, start, ...)
  check.surplus("BatchSamplerShard:len", ...)
  return count_batches(self, epoch, seed, start or 0)
end

--- Whether all batches have `length` samples, but for the last, which may have fewer unless `drop`.
local function regular(batches, length, drop)
  local m = #batches
  for k = 1, m - 1 do
    if #batches[k] ~= length then return false, k end
  end
  local last = m > 0 and #batches[m] or length
  return last > 0 and last <= length and not (drop and last < length), m
end

local function sample_shard(self, fields, start)
  if start > fields.n then raise("BatchSamplerShard: a pass of %d samples has no sample %d", fields.n, start + 1) end
  fields.start = start
  fields.size, fields.total, fields.ranks = self.batch_size, self.total_batch_size, self.num_processes
  fields.rank, fields.even = self.process_index, self.even_batches
  fields.global_batches, fields.own = M.measure(fields.n - start, fields.size, fields.ranks, fields.rank,
    fields.even, self.drop_last)
  return setmetatable(fields, SampleShard)
end

--- This process' part of an epoch, computed batch by batch: { global_batches =, own = } with the methods batch(g),
--- rows(g) and row0(g), g from 0.
---@param epoch integer
---@param seed integer
---@param start? integer samples at the beginning of the pass that are left out, as other ranks had them before: global
---  batch 0 begins after them. Not for whole batches of a batch sampler.
---@return table
function M.BatchSamplerShard:plan(epoch, seed, start, ...)
  check.surplus("BatchSamplerShard:plan", ...)
  start = start or 0
  local source, length = self.batch_sampler, self.batch_sampler.batch_size
  if self.plain then
    local sampler = source.sampler
    if class.of(sampler) == samplers.SequentialSampler then
      return sample_shard(self, { n = sampler:len(), append = append_range }, start)
    end
    local order = sampler:order(epoch, seed)
    return sample_shard(self, { n = #order, order = order, append = append_order }, start)
  end
  local order = source:order(epoch, seed)
  local m, ranks, rank = #order, self.num_processes, self.process_index
  if length then
    local good, k = regular(order, length, self.drop_last)
    if good then
      local n = m > 0 and (m - 1) * length + #order[m] or 0
      return sample_shard(self, { n = n, order = order, append = append_batches, length = length }, start)
    elseif self.split_batches and ranks > 1 then
      raise("BatchSamplerShard: split_batches needs batches of the sampler's batch_size, %d; batch %d has %d samples; "
        .. "use split_batches = false, which shares out whole batches", length, k, #order[k])
    end
  end
  if start > 0 then
    raise("BatchSamplerShard: whole batches of the batch sampler cannot begin at sample %d; use a number of processes "
      .. "whose global batch divides %d", start + 1, start)
  end
  local plan = { order = order, ranks = ranks, rank = rank, even = self.even_batches, counted = 0, before = 0 }
  plan.global_batches = self.drop_last and m // ranks or -(-m // ranks)
  plan.own = (self.drop_last or self.even_batches) and plan.global_batches or (m - rank + ranks - 1) // ranks
  return setmetatable(plan, BatchShard)
end

function M.BatchSamplerShard:order(epoch, seed)
  local plan, batches = self:plan(epoch, seed), {}
  for g = 0, plan.own - 1 do batches[g + 1] = plan:batch(g) end
  return batches
end

-- ---- streams ----

--- Reads a stream by global batches: a function that returns this rank's samples of the next one, and how many samples
--- it has over all ranks: fewer than size * ranks in the last one, 0 after it. even: the last global batch is completed
--- with the first samples of the pass, of which only those are kept that this rank may need.
---@param step fun(): any
---@param size integer
---@param ranks integer
---@param rank integer
---@param even boolean
---@return fun(): any[], integer
function M.global_batches(step, size, ranks, rank, even)
  local total, low, high = size * ranks, rank * size, (rank + 1) * size
  local keep, first, n, ended = even and high - 1 or 0, {}, 0, false
  return function()
    local own, left = {}, 0
    while left < total and not ended do
      local sample = step()
      if sample == nil then
        ended = true
        break
      end
      if left >= low and left < high then own[#own + 1] = sample end
      if n < keep then first[n + 1] = sample end
      left, n = left + 1, n + 1
    end
    if even and left > 0 and left < total then
      for j = #own, size - 1 do own[j + 1] = first[(low + j - left) % n + 1] end
    end
    return own, left
  end
end

--- A stream for one of several processes: every process reads all of it and keeps its own samples, batch_size in turn
--- (with split_batches, its part of every batch_size). The last global batch is completed with the first samples of the
--- pass, or dropped with drop_last.
--- example: local Count = accel.data.IterableDataset:extend "Count"
---   function Count:iterate() local i = 0 return function() i = i + 1 return i <= 5 and i or nil end end
---   local shard = accel.data.IterableDatasetShard(Count(), { batch_size = 2, num_processes = 2 })
---   local own = {} for x in shard:iterate() do own[#own + 1] = x end return own --> { 1, 2, 5, 1 }
---@class accel.data.IterableDatasetShard : accel.data.IterableDataset
---@field dataset table
---@field batch_size integer
---@field drop_last boolean
---@field num_processes integer
---@field process_index integer
---@field split_batches boolean
M.IterableDatasetShard = IterableDataset:extend("accel.data.IterableDatasetShard")

local function shard_length(self)
  local n = M.measure(self.dataset:len(), self.size, self.num_processes, self.process_index, true, self.drop_last)
  return n * self.size
end

---@param dataset table with the method iterate
---@param opts? {batch_size: integer?, drop_last: boolean?, num_processes: integer?, process_index: integer?,
---  split_batches: boolean?}
function M.IterableDatasetShard:init(dataset, opts)
  local who = "IterableDatasetShard"
  local o = options(who, opts, {
    batch_size = 1, drop_last = false, num_processes = 1, process_index = 0, split_batches = false,
  })
  if type(dataset) ~= "table" or dataset.iterate == nil then
    raise("%s: dataset must have the method iterate, got %s", who, check.shown(dataset))
  end
  self.dataset, self.drop_last, self.split_batches = dataset, o.drop_last, o.split_batches
  self.batch_size = check.positive(who, "batch_size", o.batch_size)
  self.num_processes = check.positive(who, "num_processes", o.num_processes)
  self.process_index = check.count(who, "process_index", o.process_index)
  if self.process_index >= self.num_processes then
    raise("%s: process_index is %d, there are %d processes, from 0", who, self.process_index, self.num_processes)
  end
  self.size = M.part_of(who, self.batch_size, self.num_processes, self.split_batches)
  if dataset.len ~= nil then self.len = shard_length end -- absent if the stream has no known length
end

function M.IterableDatasetShard:iterate(epoch, seed)
  local step, closing = stream.begin(self.dataset, epoch, seed)
  local total, drop = self.size * self.num_processes, self.drop_last
  local read = M.global_batches(step, self.size, self.num_processes, self.process_index, true)
  local own, at = {}, 0
  return function()
    if at == #own then
      local left
      own, left = read()
      at = 0
      if left == 0 or drop and left < total then
        own = {}
        return nil
      end
    end
    at = at + 1
    return own[at]
  end, nil, nil, closing
end

return M
