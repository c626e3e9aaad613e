--- Source of a prepared loader whose batches rank 0 alone reads: for data that the other ranks cannot reach, or
--- streams that must not be read twice. For every global batch rank 0 reads a batch for each rank (with split_batches
--- one for all), splits it (accel.accelerator.global_batch) and sends every rank its shard. It reads one global batch
--- ahead, so that the last one is known when it is handed out. An error of its data set is raised on all ranks.
local accel = require "accel.core"
local class = require "accel.util.class"
local collate = require "accel.data.collate"
local dist = require "accel.dist"
local fetch = require "accel.data.fetch"
local raise = require "accel.util.raise"
local reader = require "accel.data.reader"
local GlobalBatch = require "accel.accelerator.global_batch"
local stream = require "accel.data.stream"

---@class accel.accelerator.DispatchedSource
---@field base accel.data.DataLoader
---@field seed integer set by the loader
---@field seekable boolean
local Dispatched = class("accel.accelerator.DispatchedSource")

local NO_LIMIT <const> = { src = 0, max_bytes = math.maxinteger }

--- Whether this rank reads the data set: rank 0, and in a dry run, where nobody sends, every simulated rank.
local function reads() return dist.get_rank() == 0 or dist.get_backend() == "sim" end
Dispatched.reads = reads

--- Rank 0's description of its loader, broadcast to all.
local function broadcast_description(base)
  local info = {}
  if reads() then
    local ok, why = pcall(function()
      local set = base.dataset
      if not base.stream or set.len then info.batches = base:len() end
      if set.len then info.length = set:len() end
      info.size, info.drop_last, info.stream = base.batch_size or false, base.drop_last, base.stream
    end)
    if not ok then info = { failed = tostring(why) } end
  end
  local list = { info }
  if dist.get_world_size() > 1 then dist.broadcast_object_list(list, 0) end
  if list[1].failed then raise("dispatch: rank 0: %s", list[1].failed) end
  return list[1]
end

--- A collective: all ranks make one at the same time. Only rank 0 accesses its data set.
---@param base accel.data.DataLoader of rank 0. The data set of the others need not be readable
---@param o {split_batches: boolean?, slice_fn: function?} slice_fn(batch, first, last, rank, num_processes) cuts rows
---  first .. last (from 1) for a rank
function Dispatched:init(base, o)
  local P, info = dist.get_world_size(), broadcast_description(base)
  if o.split_batches and info.size and info.size % P ~= 0 then
    raise("prepare: split_batches cuts batches into equal parts: batch_size %d is not a multiple of the %d processes; "
      .. "choose one that is", info.size, P)
  end
  self.base, self.split, self.seed, self.slice_fn = base, o.split_batches or false, base.seed, o.slice_fn
  self.ranks, self.rank, self.info = P, dist.get_rank(), info
  self.per = self.split and 1 or P -- batches of a global batch
  self.seekable = not info.stream
end

--- Global batches of a pass after the first `skipped`. nil if the stream has no length.
---@param skipped? integer
---@return integer?
function Dispatched:len(skipped)
  local n = self.info.batches
  if not n then return nil end
  n = self.info.drop_last and n // self.per or -(-n // self.per)
  return math.max(0, n - (skipped or 0))
end

--- Samples of a global batch over all ranks, or nil without a fixed batch size.
---@return integer?
function Dispatched:total_batch_size() return self.info.size and self.info.size * self.per or nil end

---@return integer?
function Dispatched:total_length() return self.info.length end

-- Rank 0 -----------------------------------------------------------------------------------------

local function full(global_batch)
  for r, n in ipairs(global_batch.counts) do
    if n ~= global_batch.counts[1] or global_batch.valid[r] ~= n then return false end
  end
  return true
end

--- Reads batches of the base, indexed. Returns read(k) -> batch k of the epoch, from 1, nil after the last; the number
--- of samples before batch k; and the value to close. The base's workers, if any, read the batches from `first` on, in
--- order.
local function indexed(self, epoch, first)
  local base = self.base
  local set, size, given = base.dataset, base.batch_size or 1, base.batch_sampler
  local order = (given or base.sampler):order(epoch, self.seed)
  local n = given and #order or base.drop_last and #order // size or -(-#order // size)
  local function before(k)
    if not given then return (k - 1) * size end
    local rows = 0
    for i = 1, math.min(k - 1, n) do rows = rows + #order[i] end
    return rows
  end
  local function positions(k)
    return given and order[k] or table.move(order, (k - 1) * size + 1, math.min(k * size, #order), 1, {})
  end
  local asked, sample_offset, unbatched = first, before(first), not given and not base.batch_size
  local function feed()
    if asked > n then return nil end
    local list, at = positions(asked), sample_offset
    asked, sample_offset = asked + 1, sample_offset + #list
    return list, at
  end
  local follow, closing = reader.indexed(base, epoch, self.seed, feed, { unbatched = unbatched, sets_epoch = true })
  local due, draws = first, nil
  local function read(k)
    if k > n then return nil end
    if k == due then
      due = due + 1
      return (follow())
    end
    draws = draws or accel.worker.draws(self.seed, epoch)
    return fetch.read(set, positions(k), base.collate_fn, unbatched, draws, before(k))
  end
  return read, before, closing
end

--- The same of a stream, which is read in order.
local function iterable(self, epoch)
  local base = self.base
  local gather, size = base.collate_fn or collate.default_collate, base.batch_size
  if base.num_workers > 0 then
    local o = { size = size or nil, unbatched = not size, drop_last = base.drop_last }
    return require("accel.data.workers").stream(base, epoch, self.seed, o, true)
  end
  local within, step, closing = fetch.begin_stream(base.dataset, epoch, self.seed)
  local read = size and stream.batches(step, size, base.drop_last, gather) or step
  return function() return within(read) end, closing
end

--- Reads global batches. Returns read() -> global batch, nil at the end, and the value to close.
local function open_reader(self, epoch, first)
  local base = self.base
  local position, padding, index, at = 0, nil, 0, 0 -- samples, global batches and batches that were read
  local step, before, closing
  if self.seekable then
    index, at = first, first * self.per
    step, before, closing = indexed(self, epoch, at + 1)
    position = before(at + 1)
  else
    step, closing = iterable(self, epoch)
  end

  local function next_list()
    local list = {}
    for i = 1, self.per do
      local batch = step(at + 1)
      if batch == nil then break end
      at, list[i] = at + 1, batch
    end
    if #list == 0 or #list < self.per and base.drop_last then return nil end
    return list
  end

  --- The start of the first global batch, even for a pass that began after it.
  local function first_rows()
    if not padding and self.seekable and base.batch_size ~= false then
      local list = {}
      for k = 1, self.per do list[k] = step(k) end
      padding = GlobalBatch.padding(list, self.ranks, self.split)
    end
    return padding
  end

  local function read()
    local list = next_list()
    if not list then return nil end
    if index == 0 and self.ranks > 1 then padding = GlobalBatch.padding(list, self.ranks, self.split) end
    local global_batch = GlobalBatch.split(list, self.ranks, {
      split = self.split, joins = base.batch_size ~= false, padding = first_rows, slice_fn = self.slice_fn,
    })
    global_batch.first, global_batch.full = position, full(global_batch)
    position, index = position + global_batch.total, index + 1
    return global_batch
  end

  if not self.seekable then
    for _ = 1, first do
      if not read() then break end
    end
  end
  return read, closing
end

--- The message to rank r - 1 about its shard of a global batch, without the rows that it already has.
local function message_for(global_batch, r, last, rows_known)
  local row0 = global_batch.first
  for k = 1, r - 1 do row0 = row0 + global_batch.counts[k] end
  return {
    batch = r > 1 and global_batch.shards[r] or nil, row0 = row0, last = last,
    counts = not rows_known and global_batch.counts or nil, valid = not rows_known and global_batch.valid or nil,
    full = not rows_known and global_batch.full or nil,
  }
end

--- Whether a global batch is like the one before, whose rows the other ranks know.
local function same_rows(a, b) return a and a.full and b.full and a.counts[1] == b.counts[1] end

--- The messages of one global batch to all ranks, on rank 0.
local function sender(self, read)
  local ahead, failure, started, before
  local function look()
    local ok, global_batch = pcall(read)
    ahead, failure = ok and global_batch or nil, nil
    if not ok then failure = { global_batch } end
  end
  return function()
    if not started then
      started = true
      look()
    end
    local messages = {}
    if failure then
      for r = 1, self.ranks do messages[r] = { failed = tostring(failure[1]) } end
      return messages, nil, failure[1]
    elseif not ahead then
      for r = 1, self.ranks do messages[r] = { over = true } end
      return messages
    end
    local global_batch = ahead
    look()
    local last = not ahead and not failure
    for r = 1, self.ranks do messages[r] = message_for(global_batch, r, last, same_rows(before, global_batch)) end
    before = global_batch
    return messages, global_batch.shards[1]
  end
end

-- All ranks --------------------------------------------------------------------------------------

--- Begins a pass, without its first `first` global batches.
---@param epoch integer
---@param first? integer
---@return fun(): any, accel.accelerator.Rows?, integer?, boolean?, boolean?
---@return any closing
function Dispatched:begin(epoch, first)
  local send, read, closing, failed
  if reads() then
    local ok, why = pcall(function() read, closing = open_reader(self, epoch, first or 0) end)
    failed = not ok and why or nil
    send = sender(self, read or function() error(failed, 0) end)
  end
  local rows, over = nil, false
  local function finish()
    local open = closing
    closing = nil
    stream.close(open)
  end
  local function next_batch()
    if over then return nil end
    local messages, own, cause
    if send then messages, own, cause = send() end
    local got = messages and messages[1]
    if self.ranks > 1 then
      got = dist.scatter_object_list(messages, NO_LIMIT) or messages[self.rank + 1]
    end
    over = got.over or got.last or got.failed ~= nil
    if over then finish() end
    if got.failed then
      if cause ~= nil then error(cause, 0) end
      raise("dispatch: rank 0 could not read the batch: %s", got.failed)
    end
    if got.over then return nil end
    local batch = got.batch
    if self.rank == 0 then batch = own end
    if got.counts then rows = { counts = got.counts, valid = got.valid, full = got.full or false } end
    return batch, rows, got.row0, got.last, got.last
  end
  return next_batch, setmetatable({}, { __close = finish })
end

return Dispatched
