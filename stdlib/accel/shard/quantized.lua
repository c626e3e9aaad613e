--- ZeRO++: transfers of units in fewer bits. Parameters are gathered as 8-bit integers with a scale for every block of 256, gradients
--- exchanged as 4-bit ones with a scale for every 64. Sums use the gradients' own dtype, and every rank computes with the same
--- rounded parameters. The method is qwZ, hpZ and qgZ of the ZeRO++ paper (arXiv 2306.10209). Used by accel.shard.unit and
--- accel.shard.engine.
local accel = require "accel"
local dist = require "accel.dist"

local M = {}

local WEIGHT_BITS <const>, WEIGHT_BLOCK <const> = 8, 256
local GRADIENT_BITS <const>, GRADIENT_BLOCK <const> = 4, 64

local function release(...)
  for i = 1, select("#", ...) do
    local t = select(i, ...)
    if t then t:release() end
  end
end

-- Parameters -------------------------------------------------------------------------------------

--- The part of all parameters that this rank keeps for its secondary group: quantised if they are received quantised.
local function gather_parts(coming, q, scale, group, count, dtype)
  local n = dist.get_world_size(group)
  local all_q = accel.unscoped(accel.empty, n * q:numel(), { dtype = q.dtype, device = q.device })
  local all_scale = accel.unscoped(accel.empty, n * scale:numel(), { dtype = "f32", device = q.device })
  local works = {
    dist.all_gather_into_tensor(all_q, q, { group = group, async_op = true }),
    dist.all_gather_into_tensor(all_scale, scale, { group = group, async_op = true }),
  }
  coming.work = { wait = function()
    for _, work in ipairs(works) do work:wait() end
    local _ <close> = accel.no_grad()
    coming.whole = accel.unscoped(accel.dequantize_blockwise, all_q, all_scale, { count }, WEIGHT_BITS, WEIGHT_BLOCK, dtype)
    coming.q, coming.scale = all_q, all_scale
  end }
  return coming
end

--- Begins to gather a unit: from the parts of all ranks, or, once the forward has, from the secondary group's. wait() of the work
--- that it returns fills `whole`.
---@param unit accel.shard.Unit
---@return {whole: accel.Tensor?, work: table}
function M.start_gather(unit)
  local second, coming = unit.second, {}
  if unit.quantized then
    if second then return gather_parts(coming, second.q, second.scale, unit.secondary, unit.count, unit.dtype) end
    local q, scale = unit.own:quantize_blockwise(WEIGHT_BITS, WEIGHT_BLOCK)
    return gather_parts(coming, q, scale, unit.group, unit.count, unit.dtype)
  end
  coming.whole = accel.unscoped(accel.empty, unit.count, { dtype = unit.dtype, device = unit.device })
  if not second and unit.rounds then coming.part = accel.unscoped(unit.own.to, unit.own, unit.dtype) end
  coming.work = dist.all_gather_into_tensor(coming.whole, second and second.part or coming.part or unit.own,
    { group = second and unit.secondary or unit.group, async_op = true })
  return coming
end

--- After a gather from all ranks: this rank's share of the secondary copy, until the next step.
---@param unit accel.shard.Unit
---@param coming table
function M.keep_second(unit, coming)
  if unit.secondary and not unit.second then
    local k, n = dist.get_rank(unit.secondary), dist.get_world_size(unit.secondary)
    local function share(t) return accel.unscoped(function() return t:narrow(1, k * (t:numel() // n) + 1, t:numel() // n):clone() end) end
    if coming.q then unit.second = { q = share(coming.q), scale = share(coming.scale) }
    else unit.second = { part = share(coming.whole) } end
  end
  release(coming.q, coming.scale)
end

-- Gradients --------------------------------------------------------------------------------------

--- Parts of t, as many as the group has ranks, quantised and exchanged: every rank gets its own part of all. Returns the input
--- of finish.
local function exchange(t, group)
  local n = dist.get_world_size(group)
  local q, scale = t:quantize_blockwise(GRADIENT_BITS, GRADIENT_BLOCK)
  local got = { n = n, numel = t:numel() // n, q = accel.unscoped(accel.empty_like, q), scale = accel.unscoped(accel.empty_like, scale) }
  got.works = {
    dist.all_to_all_single(got.q, q, { group = group, async_op = true }),
    dist.all_to_all_single(got.scale, scale, { group = group, async_op = true }),
  }
  return got
end

--- The sum over ranks of an exchange's results, in the order of ranks.
local function sum_of(got, dtype)
  for _, work in ipairs(got.works) do work:wait() end
  local all = accel.dequantize_blockwise(got.q, got.scale, { got.n, got.numel }, GRADIENT_BITS, GRADIENT_BLOCK, dtype)
  release(got.q, got.scale)
  return all:sum(1)
end

--- Begins to reduce the flat gradients of a unit: the mean of this rank's part goes into `own` when wait() of the work that it
--- returns is through. If machines have several ranks, these exchange among themselves first, so that each part crosses
--- between two machines once.
---@param own accel.Tensor
---@param sum accel.Tensor as long as the parts of all ranks
---@param o {group: any, node: any, across: any, unit: accel.shard.Unit}
---@return {wait: function}
function M.reduce_scatter(own, sum, o)
  local P, part = dist.get_world_size(o.group), own:numel()
  local _ <close> = accel.no_grad()
  local first
  if o.node then
    local L = dist.get_world_size(o.node)
    first = exchange(sum:view(P // L, L, part):transpose(1, 2):contiguous():view(-1), o.node)
  else
    first = exchange(sum, o.group)
  end
  return { wait = function()
    local _ <close> = accel.no_grad()
    local total = sum_of(first, sum.dtype)
    if o.node then total = sum_of(exchange(total, o.across), sum.dtype) end
    own:copy_(total:mul_(1 / P))
    o.unit:clear_gaps(own) -- a block that was not finite is NaN to its end
  end }
end

return M
