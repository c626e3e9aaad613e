--- The Source of a prepared loader over a stream that every rank reads. A rank reads all of it and keeps its own
--- samples, or reads only its shard if the data set can be sharded (fields n_shards and the method shard). Made by
--- accel.accelerator.loader, whose head comment defines a Source.
local class = require "accel.util.class"
local collate = require "accel.data.collate"
local even_shards = require "accel.accelerator.even_shards"
local fetch = require "accel.data.fetch"
local raise = require "accel.util.raise"
local shards = require "accel.data.shards"
local unbatched_rows = require "accel.accelerator.unbatched_rows"

---@class accel.accelerator.IterableSource
---@field seed integer set by the loader
---@field native_shards boolean every rank reads its own shard, and the others' contents are unknown
---@field evens boolean the shards are made equally long (accel.accelerator.even_shards)
local IterableSource = class("accel.accelerator.IterableSource")

IterableSource.seekable = false

--- Whether a data set shards itself over that many ranks.
---@param dataset table
---@param ranks integer
---@return boolean
function IterableSource.shards_itself(dataset, ranks)
  return ranks > 1 and type(dataset.shard) == "function" and math.type(dataset.n_shards) == "integer"
    and dataset.n_shards >= ranks
end

---@param base accel.data.DataLoader
---@param o {num_processes: integer, process_index: integer, split_batches: boolean, even_batches: boolean, peers: boolean}
---  peers: the other ranks are there, and prepare the same loader
function IterableSource:init(base, o)
  self.seed, self.ranks, self.rank = base.seed, o.num_processes, o.process_index
  self.drop, self.even = base.drop_last, o.even_batches and self.ranks > 1
  self.unbatched = not base.batch_size
  local split = o.split_batches and self.ranks > 1 and not self.unbatched
  self.size = shards.part_of("prepare", base.batch_size or 1, self.ranks, split)
  self.gather = base.collate_fn or collate.default_collate
  self.native_shards = IterableSource.shards_itself(base.dataset, self.ranks)
  self.evens = self.native_shards and self.even and o.peers
  self.dataset = self.native_shards and base.dataset:shard(self.ranks, self.rank) or base.dataset
  self.base, self.base_dataset = base, base.dataset
  self.starts_anywhere = not self.native_shards and base.num_workers == 0
  if base.num_workers == 0 then return end
  if self.native_shards then
    self.base = setmetatable({ dataset = self.dataset }, { __index = base })
    require("accel.data.workers").describe(self.base)
  elseif self.ranks > 1 and not self.even then
    raise("prepare: even_batches = false and num_workers = %d: over a stream, ranks would not have the same "
      .. "global batches; use num_workers = 0 or even_batches = true", base.num_workers)
  end
  self.late_remainder = true -- each worker has its own last global batch
end

function IterableSource:total_batch_size() return self.size * self.ranks end

--- Samples of a pass over all ranks.
function IterableSource:total_length()
  if self.native_shards then return nil end
  return self.dataset.len and self.dataset:len()
end

function IterableSource:len(skipped, _, start)
  local n = self.dataset.len and self.dataset:len()
  if not n then return nil end
  n = n - (start or 0)
  local own
  if self.evens then -- as many batches as the longest shard, or with drop_last the shortest
    for r = 0, self.ranks - 1 do
      local m = self.base_dataset:shard(self.ranks, r):len()
      local batches = self.drop and m // self.size or -(-m // self.size)
      own = own and (self.drop and math.min or math.max)(own, batches) or batches
    end
  elseif self.native_shards then
    own = self.drop and n // self.size or -(-n // self.size)
  else
    own = select(2, shards.measure(n, self.size, self.ranks, self.rank, self.even, self.drop))
  end
  return math.max(0, own - (skipped or 0))
end

--- The global batches of a pass without workers, after its first `start` samples: read() -> samples, rows left (0 at
--- the end).
local function local_reader(self, epoch, ranks, rank, even, start)
  local within, step, closing = fetch.begin_stream(self.dataset, epoch, self.seed)
  within(function()
    for _ = 1, start do step() end
  end)
  local read = shards.global_batches(step, self.size, ranks, rank, even)
  local gather = self.unbatched and function(samples) return samples[1] end
    or function(samples) return fetch.collate(samples, self.gather) end
  return function()
    local own, left
    within(function() own, left = read() end)
    return own, #own, left
  end, function(own) return within(function() return gather(own) end) end, closing
end

--- The same with workers, which take turns in reading global batches. The returned values are batches.
local function worker_reader(self, epoch, ranks, rank, even)
  local o = { global_batches = true, size = self.size, ranks = ranks, rank = rank, even = even, drop_last = self.drop,
    unbatched = self.unbatched }
  local read, closing = require("accel.data.workers").stream(self.base, epoch, self.seed, o, true)
  return function()
    local batch, own, left = read()
    return batch, own or 0, left or 0
  end, function(batch) return batch end, closing
end

--- A pass over shards that are made equally long.
local function even_pass(self, epoch, first)
  local open = self.base.num_workers > 0 and worker_reader or local_reader
  local read, gather, closing = open(self, epoch, 1, 0, true, 0)
  local step = even_shards(read, { ranks = self.ranks, rank = self.rank, size = self.size, drop = self.drop, skip = first })
  local own, rows, begun
  local g = first
  return function()
    if not begun then own, rows = step() end
    begun = true
    if own == nil then return nil end
    local batch, of_batch, row0 = gather(own), rows, (self.rank << 40) + g * self.size
    g = g + 1
    own, rows = step()
    if self.unbatched then of_batch = unbatched_rows(of_batch, true, batch) end
    return batch, of_batch, row0, own == nil, own == nil
  end, closing
end

--- One global batch is read ahead, so that the last one is known as such. Those that are skipped are read and dropped.
function IterableSource:begin(epoch, first, start)
  if self.evens then return even_pass(self, epoch, first) end
  local ranks, rank, even = self.ranks, self.rank, self.even
  if self.native_shards then ranks, rank, even = 1, 0, false end
  local size, total, drop = self.size, self.size * ranks, self.drop
  local native_shards, unbatched = self.native_shards, self.unbatched
  local open = self.base.num_workers > 0 and worker_reader or local_reader
  local read, gather, closing = open(self, epoch, ranks, rank, even, start or 0)
  local own, n, left, g
  local function advance()
    own, n, left = read()
    if drop and left < total then own, n, left = nil, 0, 0 end
  end
  return function()
    if not g then
      g = first
      for _ = 1, first do read() end
      advance()
    end
    if n == 0 then return nil end -- the global batch, if there is one, belongs to other ranks
    local samples, count = own, left
    advance()
    local batch = gather(samples)
    local rows, row0
    if native_shards then
      row0 = (self.rank << 40) + g * size
    else
      row0 = (start or 0) + g * total + rank * size
      rows = count == total and shards.full_rows(size, ranks) or shards.tail_rows(count, size, ranks, even)
      if unbatched then rows = unbatched_rows(rows, even, batch) end
    end
    g = g + 1
    return batch, rows, row0, n == 0, left == 0
  end, closing
end

return IterableSource
