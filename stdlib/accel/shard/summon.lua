--- Whole parameters of a sharded model for a while: summon_full_params of nn.parallel.FullyShardedDataParallel, and the
--- accelerator's ways to read a whole state.
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local raise = require "accel.util.raise"

local M = {}

--- Opens a unit. Parameters that lie once for all ranks of a machine are written to in a copy of this rank's, and so are
--- those that are rounded while they are computed with.
local function open(unit, writes)
  if unit.rounds or unit.kind == "shared" and writes and unit.size > 1 then
    local whole = unit:gather_master()
    unit.copy = (whole == unit.flat or whole == unit.own and not writes) and accel.unscoped(whole.clone, whole) or whole
    unit:bind(unit.copy)
  else
    unit:gather()
  end
end

--- The whole tensor of rank `from` of the world comes to all.
local function send(engine, unit, whole, from)
  local group = unit.size > 1 and unit.group or engine.o.replicas
  if not group and dist.get_world_size() == 1 then return end
  for k, rank in ipairs(dist.get_process_group_ranks(group)) do
    if rank == from then dist.broadcast(whole, { group_src = k - 1, group = group }) end
  end
end

--- Closes it: each rank keeps its own changes to its part, or all get rank `from`'s.
local function close(engine, unit, writes, from)
  local whole = unit.copy or unit.flat
  local there = unit.kind ~= "gathered" or unit.copy or core.there(unit.flat)
  if writes and there then
    if from then send(engine, unit, whole, from) end
    if unit.kind == "shared" then dist.barrier { group = unit.group } end
    local part = unit:part_of(whole)
    if part:data_ptr() ~= unit.own:data_ptr() then unit.own:copy_(part) end
  end
  if unit.copy then
    unit:bind(unit.flat)
    if unit.copy ~= unit.own then unit.copy:release() end
  end
  unit.copy = nil
  if unit.kind == "gathered" then core.set(unit.flat, nil) end
  if writes then unit:publish_and_wait() end
end

--- Whole gradients, the means over ranks, as the parameters' own.
local function open_grads(unit)
  local part, any = accel.unscoped(accel.zeros, unit.part, { dtype = unit.master, device = unit.device }), {}
  for i, piece in ipairs(unit.pieces) do
    any[i] = piece and piece.grad ~= nil and 1 or 0
    if any[i] == 1 then unit:piece_of(part, i):copy_(piece.grad) end
  end
  any = accel.tensor(any, { dtype = "i32", device = "cpu" })
  dist.all_reduce(any, { op = "max", group = unit.group })
  local whole = accel.unscoped(accel.empty, unit.count, { dtype = unit.master, device = unit.device })
  dist.all_gather_into_tensor(whole, part, { group = unit.group })
  for i, has in ipairs(any:tolist()) do
    local p = unit.params[i]
    if has > 0 then
      p.grad = accel.unscoped(function() return whole:narrow(1, unit.offsets[i] + 1, unit.numels[i]):view(p.shape):to(p.dtype) end)
    end
  end
end

local function close_grads(unit, writes)
  for i, p in ipairs(unit.params) do
    local first, count = unit:range(i)
    local piece = unit.pieces[i]
    if writes and p.grad ~= nil and piece and piece.grad ~= nil then
      piece.grad:copy_(p.grad:reshape(-1):narrow(1, first + 1, count))
    end
    p.grad = nil
  end
end

---@class accel.shard.SummonOptions
---@field writeback boolean keep changes, each rank's in its own part. Otherwise nothing may be written
---@field from integer? rank of the world whose values all get, instead
---@field with_grads boolean? also gradients
---@field rank0_only boolean? the other ranks keep their parts alone
---@field units accel.shard.Unit[]? [all]

--- Every rank has whole parameters until the block ends. A collective, at its begin and at its end.
---@param engine accel.shard.Engine
---@param o accel.shard.SummonOptions
---@param fn? function
---@param ... any
function M.summon(engine, o, fn, ...)
  local units = o.units or engine:all_units()
  local leaves = o.rank0_only and dist.get_rank(engine.o.group) > 0
  local closed
  local function end_block()
    if closed then return end
    closed = true
    local _ <close> = accel.no_grad()
    for _, unit in ipairs(units) do
      if o.with_grads and unit.learns then close_grads(unit, o.writeback) end
      close(engine, unit, o.writeback, o.from)
    end
  end
  do
    local _ <close> = accel.no_grad()
    for _, unit in ipairs(units) do
      if unit.copy then raise("the parameters of the unit '%s' are gathered by a block around this one", unit.name) end
      open(unit, o.writeback)
      if o.with_grads and unit.learns then open_grads(unit) end
    end
  end
  if leaves then
    end_block()
  end
  return guard(end_block, fn, ...)
end

--- Calls each(name, tensor) for the parameters and buffers of a state, in its order: a module's parameters, its buffers, its
--- children. A tied tensor comes under every name.
---@param module accel.nn.Module
---@param each fun(name: string, t: accel.Tensor)
---@param prefix? string
---@param before? fun(module: accel.nn.Module, prefix: string)
---@param after? fun(module: accel.nn.Module, prefix: string)
function M.visit(module, each, prefix, before, after)
  module, prefix = module:_itself(), prefix or ""
  if before then before(module, prefix) end
  for _, wanted in ipairs { "parameter", "buffer" } do
    for key, value, kind in module:_fields() do
      if kind == wanted then each(prefix .. key, value) end
    end
  end
  for key, value, kind in module:_fields() do
    if kind == "module" then M.visit(value, each, prefix .. key .. ".", before, after) end
  end
  if after then after(module, prefix) end
end

--- Whole parameters, one unit gathered after the other. A collective if parameters are gathered.
---@param engine accel.shard.Engine
---@param keep boolean whether this rank gets them. The others get nothing
---@param wanted? table<accel.Tensor, any> keys: only these. Units without one are skipped
---@return table<accel.Tensor, accel.Tensor> whole tensors by parameter: copies if this rank has shards
function M.tensors(engine, keep, wanted)
  local of = {}
  for _, unit in ipairs(engine:all_units()) do
    local asked = not wanted
    for _, p in ipairs(asked and {} or unit.params) do asked = asked or wanted[p] ~= nil end
    local whole = asked and unit:gather_master()
    for i, p in ipairs(whole and keep and unit.params or {}) do
      if not wanted or wanted[p] ~= nil then
        local t = accel.unscoped(function() return whole:narrow(1, unit.offsets[i] + 1, unit.numels[i]):view(p.shape) end)
        of[p] = unit.kind == "gathered" and not unit.rounds and accel.unscoped(t.clone, t) or t
      end
    end
    if asked then unit:reshard() end
  end
  return of
end

--- A state with whole tensors: ordered, by name. For sharded parameters these are copies. Units are gathered one after the
--- other, so that at most one is in memory besides the copies. keep: whether this rank gets them. The others get nil. A
--- collective if parameters are gathered. State-dict hooks run on every rank that makes the state.
---@param engine accel.shard.Engine
---@param model accel.nn.Module
---@param keep boolean
---@param prefix? string
---@param bare? boolean without hooks: names are the model's own
---@return table<string, accel.Tensor>?
function M.state(engine, model, keep, prefix, bare)
  local _ <close> = accel.no_grad()
  local of = M.tensors(engine, keep)
  if not keep then return nil end
  local out = require "accel.util.ordered"()
  local was = engine.buffer_dtypes or {}
  M.visit(model, function(name, t) out[name] = of[t] or (was[t] and t:to(was[t]) or t):detach() end, prefix,
    not bare and function(module, at) module:_run_state_hooks("state_dict_pre", at) end,
    not bare and function(module, at)
      module:_extend_state(out, at)
      module:_run_state_hooks("state_dict_post", out, at)
    end)
  return out
end

return M
