--- Whole parameters of a sharded model for a while: summon_full_params of nn.parallel.FullyShardedDataParallel, and the
--- accelerator's ways to read a whole state.
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local guard = require "accel.util.guard"

local M = {}

--- Parameters that lie once for all ranks of a machine are written to in a copy of this rank's, of which each keeps its part.
local function open_shared(unit)
  unit.copy = accel.unscoped(unit.flat.clone, unit.flat)
  for i, p in ipairs(unit.params) do core.bind(p, unit.copy, unit.offsets[i]) end
end

local function close_shared(unit)
  dist.barrier { group = unit.group }
  unit.own:copy_(unit.copy:narrow(1, unit.rank * unit.part + 1, unit.part))
  for i, p in ipairs(unit.params) do core.bind(p, unit.flat, unit.offsets[i]) end
  unit.copy = nil
  dist.barrier { group = unit.group }
end

local function close(unit, writeback)
  if unit.kind == "shared" then
    if unit.copy then close_shared(unit) end
  elseif unit.kind == "whole" then
    if writeback and unit.size > 1 then dist.all_gather_into_tensor(unit.flat, unit.own, { group = unit.group }) end
  else
    if writeback and core.there(unit.flat) then
      unit.own:copy_(unit.flat:narrow(1, unit.rank * unit.part + 1, unit.part))
    end
    core.set(unit.flat, nil)
  end
end

--- Every rank has all parameters until the block ends. writeback: what ranks write to them stays, of each rank what lies
--- in its part; else nothing may be written. A collective, at its begin and at its end.
---@param engine accel.shard.Engine
---@param writeback boolean
---@param fn? function
---@param ... any
function M.summon(engine, writeback, fn, ...)
  do
    local _ <close> = accel.no_grad()
    for _, unit in ipairs(engine.units) do
      unit:gather()
      if unit.kind == "shared" and writeback and unit.size > 1 then open_shared(unit) end
    end
  end
  return guard(function()
    local _ <close> = accel.no_grad()
    for _, unit in ipairs(engine.units) do close(unit, writeback) end
  end, fn, ...)
end

--- Calls each(name, tensor) for the parameters and buffers of a state, in its order: a module's parameters, its buffers, its
--- children. A tied tensor comes under every name.
---@param module accel.nn.Module
---@param each fun(name: string, t: accel.Tensor)
---@param prefix? string
function M.visit(module, each, prefix)
  module, prefix = module:_itself(), prefix or ""
  for _, wanted in ipairs { "parameter", "buffer" } do
    for key, value, kind in module:_fields() do
      if kind == wanted then each(prefix .. key, value) end
    end
  end
  for key, value, kind in module:_fields() do
    if kind == "module" then M.visit(value, each, prefix .. key .. ".") end
  end
end

--- A state with whole tensors: ordered, by name. Of parameters that this rank has in parts these are copies; units come one
--- after the other, so that no more than one is gathered beside the copies. keep: whether this rank is to have them; the
--- others get nil. A collective where parameters are gathered.
---@param engine accel.shard.Engine
---@param model accel.nn.Module
---@param keep boolean
---@return table<string, accel.Tensor>?
function M.state(engine, model, keep)
  local _ <close> = accel.no_grad()
  local of = {}
  for _, unit in ipairs(engine.units) do
    unit:gather()
    for _, p in ipairs(keep and unit.params or {}) do
      of[p] = unit.kind == "gathered" and accel.unscoped(p.clone, p:detach()) or p:detach()
    end
    unit:reshard()
  end
  if not keep then return nil end
  local out = require "accel.util.ordered"()
  M.visit(model, function(name, t) out[name] = of[t] or t:detach() end)
  return out
end

return M
