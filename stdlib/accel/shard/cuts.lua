--- The division of a unit's parameters into flat units by more than dtype and device: ZeRO's sizes (reduce_bucket_size,
--- stage3_param_persistence_threshold), and the groups of ranks of ZeRO++. accel.shard.engine uses it with the option `zero`
--- (accel.deepspeed.units makes it).
local dist = require "accel.dist"
local plan = require "accel.shard.plan"
local raise = require "accel.util.raise"

local M = {}

--- A list like plan.kinds' lists with some of its parameters.
local function part_of(list, indices, persistent)
  local out = { dtype = list.dtype, device = list.device, learns = list.learns, at = {}, persistent = persistent }
  for k, i in ipairs(indices) do out[k], out.at[k] = list[i], list.at[i] end
  return out
end

--- Adds a list in pieces of at most `bucket` elements each. A larger parameter is a piece by itself.
local function add_buckets(out, list, indices, persistent, bucket)
  local piece, n = {}, 0
  for _, i in ipairs(indices) do
    local count = list[i]:numel()
    if #piece > 0 and n + count > bucket then
      out[#out + 1], piece, n = part_of(list, piece, persistent), {}, 0
    end
    piece[#piece + 1], n = i, n + count
  end
  if #piece > 0 then out[#out + 1] = part_of(list, piece, persistent) end
end

--- The lists of parameters that become flat units, in order: by kind, those that stay whole on every rank apart, none longer than
--- a bucket.
---@param params accel.Tensor[]
---@param o {zero: table?, device: string?, dtypes: function?} of the engine. zero: bucket, persist, persist_total. nil: by kind alone
---@param state {persistent: integer} elements that stay whole so far, updated
---@return table[]
function M.lists(params, o, state)
  local kinds, zero = plan.kinds(params, o.device, o.dtypes), o.zero
  if not zero then return kinds end
  local out, bucket = {}, math.max(1, zero.bucket or math.maxinteger)
  for _, list in ipairs(kinds) do
    local cut, whole = {}, {}
    for i, p in ipairs(list) do
      local n = p:numel()
      if zero.persist and n <= zero.persist and state.persistent + n <= (zero.persist_total or math.maxinteger) then
        whole[#whole + 1], state.persistent = i, state.persistent + n
      else
        cut[#cut + 1] = i
      end
    end
    add_buckets(out, list, cut, nil, bucket)
    add_buckets(out, list, whole, true, bucket)
  end
  return out
end

--- Groups of `size` consecutive ranks of a group. Returns this rank's. A collective.
local function consecutive(group, size)
  local P, own = dist.get_world_size(group), nil
  for first = 0, P - 1, size do
    local ranks = {}
    for r = first, first + size - 1 do ranks[#ranks + 1] = dist.get_global_rank(group, r) end
    local g = dist.new_group(ranks)
    if dist.get_rank(group) // size == first // size then own = g end
  end
  return own
end

--- Ranks of a group at distance `size`. Returns those with this one. A collective.
local function strided(group, size)
  local P, own = dist.get_world_size(group), nil
  for k = 0, size - 1 do
    local ranks = {}
    for r = k, P - 1, size do ranks[#ranks + 1] = dist.get_global_rank(group, r) end
    local g = dist.new_group(ranks)
    if dist.get_rank(group) % size == k then own = g end
  end
  return own
end

--- The groups of ZeRO++: secondary, whose ranks hold all parameters once (zero_hpz_partition_size), and node and across, the
--- ranks of a machine and those at the same position on the others, for gradients that are exchanged inside each machine first.
---@param zero table
---@param group any the ranks that share units
---@return {secondary: any, node: any, across: any}
function M.groups(zero, group)
  local P, out = dist.get_world_size(group), {}
  local size = zero.secondary or 1
  if size > 1 and P > 1 then
    if P % size ~= 0 then
      raise("DeepSpeed's configuration: zero_optimization.zero_hpz_partition_size = %d must divide the number of ranks, %d", size, P)
    end
    out.secondary = consecutive(group, size)
  end
  local L = dist.get_local_world_size()
  if zero.quantized_gradients and L > 1 and P > L and P % L == 0 and P == dist.get_world_size() then
    out.node, out.across = consecutive(group, L), strided(group, L)
  end
  return out
end

local told -- of ZeRO++ on ranks that share memory

--- ZeRO++'s keys for gathering have no effect if parameters are in memory once for all ranks. Warns once.
---@param zero table? sizes and bits of ZeRO
function M.say_shared(zero)
  local list = {}
  if zero and zero.quantized_weights then list[1] = "zero_quantized_weights" end
  if zero and (zero.secondary or 1) > 1 then list[#list + 1] = "zero_hpz_partition_size" end
  if #list == 0 or told or dist.get_rank() ~= 0 then return end
  told = true
  warn(("DeepSpeed's configuration: %s: no effect on ranks that share memory: parameters lie there once and are not gathered"):format(
    table.concat(list, ", ")))
end

return M
