--- GatheredParameters(params, opts, fn, ...): whole parameters of sharded models for a while, only the units that hold these. As
--- deepspeed.zero.GatheredParameters.
local check = require "accel.util.check"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local owners = require "accel.shard.owners"
local raise = require "accel.util.raise"
local summon = require "accel.shard.summon"
local tensors = require "accel.util.tensors"

local WHO <const> = "GatheredParameters"

--- Every rank has these parameters whole until the block ends: `local _ <close> = GatheredParameters(params)`, or with a function
--- that is the block. Rank modifier_rank's changes reach all ranks at the end. Without it you must not write. Parameters that are
--- not sharded are as they are. A collective, at the begin and at the end.
---@param params accel.Tensor|accel.Tensor[]
---@param opts? {modifier_rank: integer?, enabled: boolean?, fwd_module: any} modifier_rank: of the world. fwd_module: without
---  effect
---@param fn? function
---@param ... any
return function(params, opts, fn, ...)
  if type(opts) == "function" then return require "accel.shard.gathered_parameters"(params, nil, opts, fn, ...) end
  local o = options(WHO, opts, { modifier_rank = options.none, enabled = true, fwd_module = options.none })
  no_effect("accel.accelerator.GatheredParameters", o)
  local list = tensors.is_tensor(params) and { params } or params
  if type(list) ~= "table" then raise("%s: expected parameters, got %s", WHO, check.shown(params)) end
  local from = o.modifier_rank
  if from ~= nil then check.integer(WHO, "modifier_rank", from, 0, dist.get_world_size() - 1) end
  local engines, units, seen = {}, {}, {}
  for i, p in ipairs(o.enabled and list or {}) do
    if not tensors.is_tensor(p) then raise("%s: entry %d is %s, not a parameter", WHO, i, check.shown(p)) end
    local place = owners.of[p]
    if place and not seen[place.unit] then
      local engine = place.engine
      if not units[engine] then engines[#engines + 1], units[engine] = engine, {} end
      seen[place.unit] = true
      table.insert(units[engine], place.unit)
    end
  end
  local blocks = {}
  local function end_blocks()
    for k = #blocks, 1, -1 do blocks[k]:close() end
    blocks = {}
  end
  for k, engine in ipairs(engines) do
    table.sort(units[engine], function(a, b) return a.at < b.at end)
    if from and engine.o.replicas and units[engine][1].size > 1 then
      raise("%s: modifier_rank is not defined for hybrid strategies: let all ranks write the same inside summon_full_params", WHO)
    end
    blocks[k] = summon.summon(engine, { units = units[engine], writeback = from ~= nil, from = from })
  end
  return guard(end_blocks, fn, ...)
end
