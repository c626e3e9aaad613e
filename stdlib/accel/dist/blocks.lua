--- Sums over ranks whose micro-batches are any consecutive ones, in the order of a single rank: for deterministic = "world"
--- if ranks or their shares are not powers of two (otherwise the all-reduce in pairs has that order). Every rank has the
--- sums of its blocks (accel.dist.quota). An all_to_all brings each part of a flat tensor, of all blocks, to one rank, which
--- adds them up as the binary counter would. Used by the reducer and the sharded engine.
---
--- It is composed of all_to_all and all_gather: a rank sends as many times its gradient as it has blocks, at most two for
--- up to three micro-batches.
local accel = require "accel"
local Future = require "accel.dist.hooks.future"
local class = require "accel.util.class"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"
local quota = require "accel.dist.quota"

---@class accel.dist.Blocks
---@field first integer this rank's first micro-batch
---@field count integer
local Blocks = class("accel.dist.Blocks")

local function size_of(group) return group == false and 1 or dist.get_world_size(group) end
local function rank_of(group) return group == false and 0 or dist.get_rank(group) end

--- The micro-batches of a group's ranks are consecutive, and those of replicas follow each other.
---@param micro_batches integer of an update, over all ranks
---@param group any
---@param replicas? any groups of ranks that have the same part
function Blocks:init(micro_batches, group, replicas)
  self.group, self.size, self.replicas = group, size_of(group), replicas
  local n_replicas, replica = size_of(replicas or false), rank_of(replicas or false)
  local ranks, of_replica = self.size * n_replicas, replica * self.size
  self.first, self.count = quota.of(micro_batches, ranks, of_replica + rank_of(group))
  self.even = quota.is_even(micro_batches, ranks)
  self.of = {} -- blocks of each rank of the group
  for r = 0, self.size - 1 do self.of[r + 1] = quota.blocks(quota.of(micro_batches, ranks, of_replica + r)) end
  self.of_replicas = {}
  for k = 0, n_replicas - 1 do
    local first = quota.of(micro_batches, ranks, k * self.size)
    local last, n = quota.of(micro_batches, ranks, (k + 1) * self.size - 1)
    self.of_replicas[k + 1] = quota.blocks(first, last + n - first)
  end
end

--- Adds up blocks, which follow each other, where two are the halves of one. Sums are in the place of the later one.
---@param list {at: integer, size: integer, t: accel.Tensor}[]
local function merge(list)
  local stack = {}
  for _, b in ipairs(list) do
    local top = stack[#stack]
    while top and top.size == b.size and top.at % (2 * b.size) == 0 do
      b = { at = top.at, size = 2 * b.size, t = b.t:add_(top.t) }
      stack[#stack] = nil
      top = stack[#stack]
    end
    stack[#stack + 1] = b
  end
  return stack
end

--- The sum of blocks that cover the update.
local function total(stack)
  local sum = stack[#stack].t
  for i = #stack - 1, 1, -1 do sum:add_(stack[i].t) end
  return sum
end

--- Brings the blocks of all ranks, of this rank's part of `each` elements, here. Returns a future of the merged list.
local function gather_parts(self, sum, before, each)
  local n, count, me = self.size, sum:numel(), rank_of(self.group)
  local own = { table.unpack(before) }
  own[#own + 1] = sum
  local function length(p) return math.max(0, math.min(each, count - p * each)) end
  local sends, receives, at, all = {}, {}, 0, 0
  for p = 0, n - 1 do
    sends[p + 1], receives[p + 1] = #own * length(p), #self.of[p + 1] * length(me)
    all = all + receives[p + 1]
  end
  local out, into = flat(#own * count, sum.dtype, tostring(sum.device)), flat(all, sum.dtype, tostring(sum.device))
  for p = 0, n - 1 do
    for _, t in ipairs(own) do
      if length(p) > 0 then out:narrow(1, at + 1, length(p)):copy_(t:narrow(1, p * each + 1, length(p))) end
      at = at + length(p)
    end
  end
  local work = dist.all_to_all_single(into, out, {
    output_split_sizes = receives, input_split_sizes = sends, group = self.group, async_op = true,
  })
  return Future(work):and_then(function()
    out:release()
    local list, from = {}, 0
    for p = 1, n do
      for _, b in ipairs(self.of[p]) do
        list[#list + 1] = { at = b.at, size = b.size, t = into:narrow(1, from + 1, length(me)) }
        from = from + length(me)
      end
    end
    return merge(list)
  end)
end

--- The merged blocks of one replica, together with those of the others.
local function gather_replicas(self, stack)
  local most, each = 0, stack[1].t:numel()
  for _, blocks in ipairs(self.of_replicas) do most = math.max(most, #blocks) end
  local own = flat(most * each, stack[1].t.dtype, tostring(stack[1].t.device)):zero_()
  for i, b in ipairs(stack) do own:narrow(1, (i - 1) * each + 1, each):copy_(b.t) end
  local all = flat(#self.of_replicas * most * each, own.dtype, tostring(own.device))
  local work = dist.all_gather_into_tensor(all, own, { group = self.replicas, async_op = true })
  return Future(work):and_then(function()
    local list = {}
    for k, blocks in ipairs(self.of_replicas) do
      for i, b in ipairs(blocks) do
        list[#list + 1] = { at = b.at, size = b.size, t = all:narrow(1, ((k - 1) * most + i - 1) * each + 1, each) }
      end
    end
    return merge(list)
  end)
end

--- This rank's part of the sum, into `own`. Returns a future of it.
---@param own accel.Tensor
---@param sum accel.Tensor this rank's last block
---@param before accel.Tensor[] those before it
function Blocks:reduce_scatter(own, sum, before)
  local _ <close> = accel.no_grad()
  return accel.unscoped(function()
    local future = gather_parts(self, sum, before, own:numel())
    if self.replicas and #self.of_replicas > 1 then
      future:and_then(function(stack) return accel.unscoped(gather_replicas, self, stack) end)
    end
    return future:and_then(function(stack) return own:copy_(total(stack)) end)
  end)
end

--- The sum in place of the last block. Returns a future of it.
---@param sum accel.Tensor
---@param before accel.Tensor[]
function Blocks:all_reduce(sum, before)
  local _ <close> = accel.no_grad()
  return accel.unscoped(function()
    local each = -(-sum:numel() // self.size)
    return gather_parts(self, sum, before, each):and_then(function(stack)
      return accel.unscoped(function()
        local part, all = total(stack), flat(each * self.size, sum.dtype, tostring(sum.device))
        local own = flat(each, sum.dtype, tostring(sum.device)):zero_()
        if part:numel() > 0 then own:narrow(1, 1, part:numel()):copy_(part) end
        return Future(dist.all_gather_into_tensor(all, own, { group = self.group, async_op = true })):and_then(function()
          return sum:copy_(all:narrow(1, 1, sum:numel()))
        end)
      end)
    end)
  end)
end

return Blocks
