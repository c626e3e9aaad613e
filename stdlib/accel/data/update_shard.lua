--- A rank's part of a pass that is cut into updates of M micro-batches each, whatever the number of ranks: of every update
--- it has the micro-batches of accel.dist.quota. Ranks can have different numbers of them. Used by prepared loaders of an
--- Accelerator with micro_batches.
local quota = require "accel.dist.quota"
local raise = require "accel.util.raise"
local shards = require "accel.data.shards"

local M = {}

--- Updates of a pass of n batches. Samples that fill no whole update are an error unless they are dropped.
---@param plan table of accel.data.BatchSamplerShard for one rank
---@param micro_batches integer
---@param drop boolean
---@return integer
local function updates_of(plan, micro_batches, drop)
  local n = plan.own
  local short = plan.n and plan.size and plan.start and (plan.n - plan.start) % (plan.size * micro_batches) or n % micro_batches
  if short ~= 0 and not drop then
    raise("DataLoader: the pass ends inside an update: its last %d %s do not fill the %d micro-batches of an update; set"
      .. " drop_last = true to skip them, or choose a batch_size and micro_batches that divide the data", short,
      plan.n and "samples" or "batches", micro_batches)
  end
  return n // micro_batches
end

local Plan = {}
Plan.__index = Plan

--- The batch of the pass, over all ranks, that is this rank's k-th one.
local function place(self, k) return k // self.count * self.micro_batches + self.first + k % self.count end

function Plan:batch(k) return self.whole:batch(place(self, k)) end
function Plan:row0(k) return self.whole:row0(place(self, k)) end
function Plan:rows(k) return shards.full_rows(self.whole:rows(place(self, k)).counts[1], self.ranks) end

--- The plan of a rank: as one of accel.data.BatchSamplerShard.
---@param whole table the plan of one rank that reads all
---@param o {micro_batches: integer, ranks: integer, rank: integer, drop: boolean}
function M.plan(whole, o)
  local first, count = quota.of(o.micro_batches, o.ranks, o.rank)
  local updates = updates_of(whole, o.micro_batches, o.drop)
  return setmetatable({
    whole = whole, micro_batches = o.micro_batches, ranks = o.ranks, first = first, count = count,
    own = updates * count, global_batches = updates * count,
  }, Plan)
end

return M
