--- Source of a prepared loader whose batches rank 0 alone reads: for data that the other ranks cannot reach, or
--- streams that must not be read twice. Every round rank 0 reads a batch for each rank (with split_batches one for
--- all), cuts what has to be cut (accel.accelerator.rounds) and sends every rank its part. It reads one round ahead,
--- so that the last round is known when it is handed out. An error of its data set is raised on all ranks.
local accel = require "accel.core"
local class = require "accel.util.class"
local collate = require "accel.data.collate"
local dist = require "accel.dist"
local fetch = require "accel.data.fetch"
local raise = require "accel.util.raise"
local reader = require "accel.data.reader"
local rounds = require "accel.accelerator.rounds"
local stream = require "accel.data.stream"

---@class accel.accelerator.DispatchedSource
---@field base accel.data.DataLoader
---@field seed integer set by the loader
---@field seekable boolean
local Dispatched = class("accel.accelerator.DispatchedSource")

local NO_LIMIT <const> = { src = 0, max_bytes = math.maxinteger }

--- What rank 0 knows of its loader, told to all.
local function told(base)
  local info = {}
  if dist.get_rank() == 0 then
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

--- A collective: all ranks make one at the same time; only rank 0's data set is asked.
---@param base accel.data.DataLoader of rank 0; that of the others may have a data set that cannot be read
---@param o {split_batches: boolean?, slice_fn: function?} slice_fn(batch, first, last, rank, num_processes) cuts rows
---  first .. last (from 1) for a rank
function Dispatched:init(base, o)
  local P, info = dist.get_world_size(), told(base)
  if o.split_batches and info.size and info.size % P ~= 0 then
    raise("prepare: split_batches cuts batches into equal parts: batch_size %d is no multiple of the %d processes; "
      .. "choose one that is", info.size, P)
  end
  self.base, self.split, self.seed, self.slice_fn = base, o.split_batches or false, base.seed, o.slice_fn
  self.ranks, self.rank, self.info = P, dist.get_rank(), info
  self.per = self.split and 1 or P -- batches of a round
  self.seekable = not info.stream
end

--- Rounds of a pass after the first `skipped`; nil when the stream cannot tell.
---@param skipped? integer
---@return integer?
function Dispatched:len(skipped)
  local n = self.info.batches
  if not n then return nil end
  n = self.info.drop_last and n // self.per or -(-n // self.per)
  return math.max(0, n - (skipped or 0))
end

--- Samples of a round over all ranks; nil without a fixed batch size.
---@return integer?
function Dispatched:total_batch_size() return self.info.size and self.info.size * self.per or nil end

---@return integer?
function Dispatched:total_length() return self.info.length end

-- Rank 0 -----------------------------------------------------------------------------------------

local function full(round)
  for r, n in ipairs(round.counts) do
    if n ~= round.counts[1] or round.valid[r] ~= n then return false end
  end
  return true
end

--- Reads batches of the base, indexed: read(k) -> batch k of the epoch, from 1, nil after the last; how many samples
--- lie before batch k; and the value to close. The batches from `first` on, in their order, are read by workers where
--- the base has them.
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
  local asked, place, single = first, before(first), not given and not base.batch_size
  local function feed()
    if asked > n then return nil end
    local list, at = positions(asked), place
    asked, place = asked + 1, place + #list
    return list, at
  end
  local follow, closing = reader.indexed(base, epoch, self.seed, feed, { single = single, tells_epoch = true })
  local due, draws = first, nil
  local function read(k)
    if k > n then return nil end
    if k == due then
      due = due + 1
      return (follow())
    end
    draws = draws or accel.worker.draws(self.seed, epoch)
    return fetch.read(set, positions(k), base.collate_fn, single, draws, before(k))
  end
  return read, before, closing
end

--- The same of a stream, which is read in order.
local function streamed(self, epoch)
  local base = self.base
  local gather, size = base.collate_fn or collate.default_collate, base.batch_size
  if base.num_workers > 0 then
    local o = { size = size or nil, single = not size, drop_last = base.drop_last }
    return require("accel.data.workers").stream(base, epoch, self.seed, o, true)
  end
  local within, step, closing = fetch.begin_stream(base.dataset, epoch, self.seed)
  local read = size and stream.batches(step, size, base.drop_last, gather) or step
  return function() return within(read) end, closing
end

--- Reads rounds: read() -> round, nil at the end; and the value to close.
local function open_reader(self, epoch, first)
  local base = self.base
  local position, filler, index, at = 0, nil, 0, 0 -- samples, rounds and batches that were read
  local step, before, closing
  if self.seekable then
    index, at = first, first * self.per
    step, before, closing = indexed(self, epoch, at + 1)
    position = before(at + 1)
  else
    step, closing = streamed(self, epoch)
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

  --- The start of the first round, also for a pass that began after it.
  local function fill()
    if not filler and self.seekable and base.batch_size ~= false then
      local list = {}
      for k = 1, self.per do list[k] = step(k) end
      filler = rounds.filler(list, self.ranks, self.split)
    end
    return filler
  end

  local function read()
    local list = next_list()
    if not list then return nil end
    if index == 0 and self.ranks > 1 then filler = rounds.filler(list, self.ranks, self.split) end
    local round = rounds.cut(list, self.ranks, {
      split = self.split, joins = base.batch_size ~= false, filler = fill, slice_fn = self.slice_fn,
    })
    round.first, round.full = position, full(round)
    position, index = position + round.total, index + 1
    return round
  end

  if not self.seekable then
    for _ = 1, first do
      if not read() then break end
    end
  end
  return read, closing
end

--- What rank r is told of a round.
local function letter(round, r, last, rows_known)
  local row0 = round.first
  for k = 1, r - 1 do row0 = row0 + round.counts[k] end
  return {
    batch = r > 1 and round.parts[r] or nil, row0 = row0, last = last,
    counts = not rows_known and round.counts or nil, valid = not rows_known and round.valid or nil,
    full = not rows_known and round.full or nil,
  }
end

--- Whether a round is like the one before, whose rows the other ranks know.
local function alike(a, b) return a and a.full and b.full and a.counts[1] == b.counts[1] end

--- The letters of one round to all ranks, on rank 0.
local function sender(self, read)
  local ahead, failure, started, before
  local function look()
    local ok, round = pcall(read)
    ahead, failure = ok and round or nil, nil
    if not ok then failure = { round } end
  end
  return function()
    if not started then
      started = true
      look()
    end
    local letters = {}
    if failure then
      for r = 1, self.ranks do letters[r] = { failed = tostring(failure[1]) } end
      return letters, nil, failure[1]
    elseif not ahead then
      for r = 1, self.ranks do letters[r] = { over = true } end
      return letters
    end
    local round = ahead
    look()
    local last = not ahead and not failure
    for r = 1, self.ranks do letters[r] = letter(round, r, last, alike(before, round)) end
    before = round
    return letters, round.parts[1]
  end
end

-- All ranks --------------------------------------------------------------------------------------

--- Begins a pass, without its first `first` rounds.
---@param epoch integer
---@param first? integer
---@return fun(): any, accel.accelerator.Rows?, integer?, boolean?, boolean?
---@return any closing
function Dispatched:begin(epoch, first)
  local send, read, closing, failed
  if self.rank == 0 then
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
    local letters, own, cause
    if send then letters, own, cause = send() end
    local got = letters and letters[1]
    if self.ranks > 1 then
      got = dist.scatter_object_list(letters, NO_LIMIT)
    end
    over = got.over or got.last or got.failed ~= nil
    if over then finish() end
    if got.failed then
      if cause ~= nil then error(cause, 0) end
      raise("dispatch: rank 0 could not read the batch: %s", got.failed)
    end
    if got.over then return nil end
    local batch = send and own or got.batch
    if got.counts then rows = { counts = got.counts, valid = got.valid, full = got.full or false } end
    return batch, rows, got.row0, got.last, got.last
  end
  return next_batch, setmetatable({}, { __close = finish })
end

return Dispatched
