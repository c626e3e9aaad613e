--- The Source of a prepared loader over indexed data: every rank fetches its own part, by BatchSamplerShard. Made by
--- accel.accelerator.loader, whose head comment defines a Source.
local class = require "accel.util.class"
local quota = require "accel.dist.quota"
local raise = require "accel.util.raise"
local reader = require "accel.data.reader"
local samplers = require "accel.data.samplers"
local shards = require "accel.data.shards"
local unbatched_rows = require "accel.accelerator.unbatched_rows"
local update_shard = require "accel.data.update_shard"

---@class accel.accelerator.IndexedSource
---@field seed integer set by the loader
---@field even_batches boolean may be set between passes
local Indexed = class("accel.accelerator.IndexedSource")

Indexed.seekable = true
Indexed.starts_anywhere = true

--- The batch sampler of a loader, created from its sampler if it has none.
local function batches_of(base)
  return base.batch_sampler or samplers.BatchSampler(base.sampler, base.batch_size or 1, { drop_last = base.drop_last })
end

---@param base accel.data.DataLoader
---@param o {num_processes: integer, process_index: integer, split_batches: boolean, even_batches: boolean, micro_batches: integer?,
---  trains: (fun(): boolean)?} micro_batches: of an update over all ranks. trains: whether a pass that begins is one of training, which is
---  cut into updates
function Indexed:init(base, o)
  self.base, self.seed, self.even_batches = base, base.seed, o.even_batches
  self.ranks = o.num_processes
  self.unbatched = not base.batch_sampler and not base.batch_size
  if self.unbatched and o.split_batches and self.ranks > 1 then
    raise("prepare: split_batches cuts batches, and a loader with batch_size = false makes none; "
      .. "use split_batches = false")
  end
  self.split_batches = o.split_batches
  self.shard = shards.BatchSamplerShard(batches_of(base), o.num_processes, o.process_index,
    { split_batches = o.split_batches })
  if not o.micro_batches then return end
  if o.split_batches or self.unbatched then
    raise("prepare: with micro_batches or --num-machines MIN:MAX, one batch of the loader is one micro-batch; %s", o.split_batches
      and "remove split_batches, and set batch_size to the size of a micro-batch" or "give the loader a batch_size")
  end
  self.trains, self.micro_batches, self.rank = o.trains, o.micro_batches, o.process_index
  self.whole = shards.BatchSamplerShard(batches_of(base), 1, 0, { even_batches = false })
end

--- Whether the pass under way, the last one or else the coming one is cut into updates of a fixed number of micro-batches.
local function by_updates(self)
  if not self.micro_batches then return false end
  if self.cut == nil then return self.trains() end
  return self.cut
end

local function plan_of(self, epoch, start)
  return update_shard.plan(self.whole:plan(epoch, self.seed, start), {
    micro_batches = self.micro_batches, ranks = self.ranks, rank = self.rank, drop = self.shard.drop_last,
  })
end

--- Whether the pass under way is cut into updates.
---@return boolean
function Indexed:cuts() return by_updates(self) end

--- The world has other ranks: passes and rests of passes that begin from now on are for these.
---@param ranks integer
---@param rank integer
function Indexed:regroup(ranks, rank)
  self.ranks, self.rank = ranks, self.micro_batches and rank
  self.shard = shards.BatchSamplerShard(batches_of(self.base), ranks, rank, { split_batches = self.split_batches })
end

--- Batches of this rank in a global batch: more than one if that is an update.
function Indexed:round()
  return by_updates(self) and select(2, quota.of(self.micro_batches, self.ranks, self.rank)) or 1
end

--- One rank has nobody to be even with.
local function shard_of(self)
  self.shard.even_batches = self.even_batches and self.ranks > 1
  return self.shard
end

--- The number in its update, from 1, of this rank's batch `place` of a pass that is cut into updates, and whether it is the rank's first one
--- there.
---@param place integer from 1
function Indexed:micro_batch(place)
  local first, share = quota.of(self.micro_batches, self.ranks, self.rank)
  local at = (place - 1) % share + 1
  return first + at, at == 1
end

function Indexed:len(skipped, epoch, start)
  if by_updates(self) then return math.max(0, plan_of(self, epoch or 0, start).own - (skipped or 0)) end
  return math.max(0, shard_of(self):len(epoch, self.seed, start) - (skipped or 0))
end

function Indexed:total_batch_size()
  if by_updates(self) then return self.whole.batch_size and self.whole.batch_size * self.micro_batches end
  return self.shard.total_batch_size
end

function Indexed:total_length() return self.shard:samples() end

function Indexed:begin(epoch, first, start)
  local base, g, asked = self.base, first, first
  if self.micro_batches then self.cut = self.trains() end
  local plan = by_updates(self) and plan_of(self, epoch, start) or shard_of(self):plan(epoch, self.seed, start)
  local own, global_batches, unbatched, even = plan.own, plan.global_batches, self.unbatched, self.shard.even_batches
  local function feed() -- with workers, ahead of the delivered batches
    if asked >= own then return nil end
    local positions, row0 = plan:batch(asked), plan:row0(asked)
    asked = asked + 1
    return positions, row0
  end
  local read, closing = reader.indexed(base, epoch, self.seed, feed, { unbatched = unbatched, sets_epoch = true })
  return function()
    if g >= own then return nil end
    local batch, positions, row0 = read()
    if batch == nil then raise("DataLoader: the batch of positions %d ... is nil", positions and positions[1] or 0) end
    local rows = plan:rows(g)
    if unbatched then rows = unbatched_rows(rows, even, batch) end
    g = g + 1
    return batch, rows, row0, g >= own, g >= global_batches
  end, closing
end

return Indexed
