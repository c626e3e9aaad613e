--- Steps of optimizers whose rule needs whole tensors (Muon, Adafactor) on the pieces of sharded parameters. A parameter within one
--- rank's part needs no communication. For those that are cut, and have a gradient, ranks exchange the data that the rule needs, one
--- unit after the other, and every rank that holds a piece computes the same update and takes its own range of it.
---
--- An optimizer defines
---   part_dtypes(dtype)                      the dtypes of the tensors it needs whole, for parameters of a dtype
---   parts_of(group, step_group, grads)      lists of these, one for each dtype, of the pieces, flat. Made before any exchange
---   update_whole(group, step_group, i, wholes, lr, cut)   steps on parameter i of the step group: wholes have the parameter's shape,
---                                           cut(t) is this rank's range of a tensor of that shape, flat
---   end_whole(step_group)                   called once after the last one (optional)
local accel = require "accel"
local dist = require "accel.dist"
local owners = require "accel.shard.owners"
local plan = require "accel.shard.plan"

local M = {}

--- The ranks of a unit's group that hold elements of parameter i: the first and the last, from 0.
local function holders(unit, i)
  return unit.offsets[i] // unit.part, (unit.offsets[i] + unit.numels[i] - 1) // unit.part
end

--- Which of the engine's parameters any rank has a gradient for, by number. A collective.
local function present(engine, entry_of)
  local list = {}
  for n = 1, engine.n do
    local place = engine.place[n]
    list[n] = entry_of[place.unit.pieces[place.i]] and 1 or 0
  end
  local size = dist.get_world_size(engine.o.group)
  if size == 1 or #list == 0 then return list end
  local t = accel.tensor(list, { dtype = "i32", device = "cpu" })
  dist.all_reduce(t, { op = "max", group = engine.o.group })
  return t:tolist()
end

--- The layout of a unit's cut tensors in the ranks' blocks: the start of each in a rank's block, and the length of the
--- longest block.
local function layout(unit, cut)
  local at, most = {}, 0
  for r = 0, unit.size - 1 do
    local n = 0
    at[r] = {}
    for _, i in ipairs(cut) do
      local first, last = plan.held(unit, unit.numels, i, r)
      at[r][i] = n
      if first then n = n + last - first + 1 end
    end
    most = math.max(most, n)
  end
  return at, most
end

--- Whole tensors of the cut parameters that this rank holds a piece of, by parameter. A collective.
local function exchange(unit, cut, dtype, part_of)
  local at, most = layout(unit, cut)
  local send = accel.zeros(most, { dtype = dtype, device = unit.device })
  for _, i in ipairs(cut) do
    local part = part_of(i)
    if part then send:narrow(1, at[unit.rank][i] + 1, part:numel()):copy_(part) end
  end
  local all = accel.empty(most * unit.size, { dtype = dtype, device = unit.device })
  dist.all_gather_into_tensor(all, send, { group = unit.group })
  local wholes = {}
  for _, i in ipairs(cut) do
    if unit.pieces[i] then
      local whole = accel.empty(unit.numels[i], { dtype = dtype, device = unit.device })
      for r = holders(unit, i), select(2, holders(unit, i)) do
        local first, last = plan.held(unit, unit.numels, i, r)
        whole:narrow(1, first + 1, last - first + 1):copy_(all:narrow(1, r * most + at[r][i] + 1, last - first + 1))
      end
      wholes[i] = whole
    end
  end
  return wholes
end

local function step_unit(optimizer, unit, mine, entry_of)
  local dtypes, cut, wholes = optimizer:part_dtypes(unit.master), {}, {}
  for _, i in ipairs(mine) do
    local first, last = holders(unit, i)
    if first < last then cut[#cut + 1] = i end
  end
  for k, dtype in ipairs(#cut > 0 and dtypes or {}) do
    wholes[k] = exchange(unit, cut, dtype, function(i)
      local entry = entry_of[unit.pieces[i]]
      return entry and entry.parts[k]
    end)
  end
  for _, i in ipairs(mine) do
    local entry = unit.pieces[i] and entry_of[unit.pieces[i]]
    if entry then
      local shape, list = unit.params[i].shape, {}
      for k in ipairs(dtypes) do list[k] = (wholes[k] and wholes[k][i] or entry.parts[k]):view(shape) end
      local first, count = unit:range(i)
      optimizer:update_whole(entry.due.group, entry.due.step_group, entry.i, list, entry.due.lr, function(t)
        return t:reshape(-1):narrow(1, first + 1, count)
      end)
    end
  end
end

--- One step of the step groups that are due, inside no_grad. A collective.
---@param optimizer accel.optim.Optimizer
---@param sharding table of owners.adopt
---@param due {group: table, step_group: table, grads: accel.Tensor[], lr: accel.Tensor}[]
function M.step(optimizer, sharding, due)
  local entry_of = {}
  for _, d in ipairs(due) do
    local lists = optimizer:parts_of(d.group, d.step_group, d.grads)
    for i, p in ipairs(d.step_group.params) do
      local parts = {}
      for k, list in ipairs(lists) do parts[k] = list[i] end
      entry_of[p] = { due = d, i = i, parts = parts }
      if not owners.engine_of[p] then -- not sharded
        optimizer:update_whole(d.group, d.step_group, i, parts, d.lr, function(t) return t end)
      end
    end
  end
  local wanted = {}
  for _, p in ipairs(sharding.params) do wanted[p] = true end
  for _, engine in ipairs(sharding.engines) do
    local has = present(engine, entry_of)
    for _, unit in ipairs(engine.order) do
      local mine = {}
      for i, p in ipairs(unit.params) do
        if wanted[p] and has[engine.number[p]] > 0 then mine[#mine + 1] = i end
      end
      step_unit(optimizer, unit, mine, entry_of)
    end
  end
  for _, d in ipairs(due) do
    if optimizer.end_whole then optimizer:end_whole(d.step_group) end
  end
end

return M
