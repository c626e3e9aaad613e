--- A model whose trained parameters are others than those that were cut: some were frozen or learn again, modules were replaced,
--- adapters came. Part of accel.shard.Engine, installed by engine.lua. nn.parallel.FullyShardedDataParallel calls `follow`.
---
--- Units whose parameters are the same, and learn or do not as before, stay as they are. The others are made whole, one after the other,
--- and cut anew. Gradients that were reduced, and states of optimizers, move to the new pieces: a rank gets the ranges that other ranks
--- had from them.
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local gradients = require "accel.optim.core"
local owners = require "accel.shard.owners"
local raise = require "accel.util.raise"

return function(Engine)
  local HALF <const> = { f16 = true, bf16 = true }

  --- The dtypes of the unit that a parameter is in, or is to be in: {dtype =, master =, reduce =}. One of 16 bits that was frozen and learns
  --- now gets the f32 parts that it would have had.
  function Engine:dtypes_of(p)
    local place, given = owners.of[p], self.o.dtypes and self.o.dtypes(p) or {}
    if not place or place.engine ~= self then return given end
    local unit = place.unit
    local dtype, master = unit.dtype, unit.master
    if p.requires_grad and not unit.learns and HALF[master] then
      master = self.upcasts and "f32" or given.master or master
      if self.upcasts then dtype = given.dtype or "f32" end
    end
    return { dtype = dtype, master = master, reduce = given.reduce or dtype == unit.dtype and unit.wire or nil }
  end

  --- An optimizer steps on pieces of this engine. Ranks make their optimizers in one order, so that the number is one name for it.
  function Engine:register(optimizer)
    self.n_optimizers = self.n_optimizers + 1
    self.optimizers[self.n_optimizers] = optimizer
  end

  --- Parameters of a unit have their values whole, as owners keep them. A collective.
  local function dissolve(self, unit)
    local _ <close> = accel.no_grad()
    self.before[unit] = nil
    unit.whole = unit:gather_master()
    unit:bind(unit.whole)
    self.dissolved[#self.dissolved + 1] = unit
  end

  local function has_these(unit, list)
    if #unit.params ~= #list or unit.learns ~= list.learns or unit.persistent ~= (list.persistent or false) then return false end
    for i, p in ipairs(list) do
      if unit.params[i] ~= p then return false end
    end
    return true
  end

  --- The existing unit of these parameters. nil if a new one is needed, and its parameters are whole. A collective.
  ---@return accel.shard.Unit?
  function Engine:kept_unit(list, names, u)
    if not self.before then return nil end
    for _, p in ipairs(list) do
      local place = owners.of[p]
      local unit = place and place.engine == self and self.before[place.unit] and place.unit
      if unit and has_these(unit, list) then
        unit.name, unit.names, self.before[unit] = u.name, names, nil
        return unit
      elseif unit then
        dissolve(self, unit)
      end
    end
  end

  -- Data of pieces ----------------------------------------------------------------------------------

  --- This rank's data for the parameters of a unit: by parameter {first =, count =, grad =, states = {[optimizer] = state}} or false.
  local function held(self, unit)
    local list = {}
    for i, piece in ipairs(unit.pieces) do
      list[i] = false
      if piece then
        local first, count = unit:range(i)
        local states = {}
        for number, optimizer in next, self.optimizers do states[tostring(number)] = optimizer.state[piece] end
        list[i] = { first = first, count = count, grad = piece.grad, states = states }
      end
    end
    return list
  end

  --- Elements [first, first + count) of elementwise data, from the ranks that had them. For other data the first rank's value.
  local function take(parts, i, get, first, count, device)
    local out
    for _, part in ipairs(parts) do
      local entry, value = part[i], nil
      if entry then value = get(entry) end
      if value ~= nil then
        if not accel.is_tensor(value) then return value end
        if value.ndim ~= 1 or value:numel() ~= entry.count then return accel.unscoped(value.to, value, tostring(device)):clone() end
        out = out or accel.unscoped(accel.zeros, count, { dtype = value.dtype, device = device })
        local from, to = math.max(first, entry.first), math.min(first + count, entry.first + entry.count)
        if from < to then out:narrow(1, from - first + 1, to - from):copy_(value:narrow(1, from - entry.first + 1, to - from)) end
      end
    end
    return out
  end

  --- An optimizer's state of parameter i, for a range of it. nil if no rank had one.
  local function state_of(parts, i, number, first, count, device)
    local names, state = {}, nil
    for _, part in ipairs(parts) do
      for name in next, part[i] and part[i].states[number] or {} do names[name] = true end
    end
    for name in next, names do
      state = state or {}
      state[name] = take(parts, i, function(entry)
        local s = entry.states[number]
        return s and s[name]
      end, first, count, device)
    end
    return state
  end

  --- Gives a new piece the gradient of the old one.
  local function set_gradient(place, grad)
    local unit, piece = place.unit, place.unit.pieces[place.i]
    if not unit.reduced then
      unit.reduced = accel.unscoped(accel.zeros, unit.part, { dtype = unit.master, device = unit.device })
    end
    piece.grad = unit:piece_of(unit.reduced, place.i):copy_(grad)
  end

  --- Transfers the data of a dissolved unit's pieces to the pieces of the new ones. states: [optimizer][parameter], extended here. A
  --- collective.
  local function hand_on(self, unit, states)
    local parts = dist.all_gather_object(held(self, unit), { group = self.o.group, max_bytes = math.maxinteger })
    for i, p in ipairs(unit.params) do
      local place, first, count = owners.of[p], 0, p:numel()
      if place.unit == unit then place = nil else first, count = place.unit:range(place.i) end
      if first then
        local device = p.device
        if place then device = place.unit.device end
        local grad = take(parts, i, function(entry) return entry.grad end, first, count, device)
        if grad ~= nil and place then set_gradient(place, grad) elseif grad ~= nil then p.grad = grad:view(p.shape) end
        for number, optimizer in next, self.optimizers do
          local state = state_of(parts, i, tostring(number), first, count, device)
          for name, t in next, not place and state or {} do
            if accel.is_tensor(t) and t.ndim == 1 and t:numel() == count then state[name] = t:view(p.shape) end
          end
          states[optimizer][p] = state
        end
      end
    end
  end

  --- Parameters that left the model get separate memory. The unit's is freed.
  local function give_up(unit)
    for i, p in ipairs(unit.params) do
      local piece = unit.pieces[i]
      if piece then owners.engine_of[piece] = nil end
      if owners.of[p].unit == unit then
        core.bind(p, accel.unscoped(p.clone, p:detach()), 0)
        owners.of[p] = nil
      end
    end
    if unit.whole ~= unit.flat and unit.whole ~= unit.own then unit.whole:release() end
    unit.whole, unit.second = nil, nil
    if unit.kind == "gathered" then core.set(unit.flat, nil) end
  end

  -- The change ------------------------------------------------------------------------------------

  --- Whether trained units hold all of these: if others of them are frozen, their gradients are zeros.
  ---@param params accel.Tensor[]
  ---@return boolean
  function Engine:covers(params)
    for _, p in ipairs(params) do
      if not self.number[p] then return false end
    end
    return true
  end

  --- Raises if parameters cannot be exchanged now.
  ---@param changes string for the message
  function Engine:check_idle(changes)
    if self.tier then
      raise("%s: the trained parameters changed after prepare, but parts of training are in host memory or files: %s; change them before"
        .. " prepare, or shard without offloading", self.who, changes)
    elseif self.apart then
      raise("%s: the trained parameters changed after prepare, but experts are divided among ranks: %s; change them before prepare",
        self.who, changes)
    elseif self.running or self.finishing or (self.counter and self.counter.n > 0) or gradients.count(self.params) > 0 then
      raise("%s: the trained parameters changed while gradients of no_sync() were not reduced yet: %s; change them after optimizer:step()"
        .. " and zero_grad()", self.who, changes)
    end
  end

  --- New parameters of 16 bits that learn become f32, as prepare has it.
  function Engine:upcast(params)
    if not self.upcasts then return end
    local upcast = require "accel.shard.upcast"
    for _, p in ipairs(params) do
      local place = owners.of[p]
      if upcast.low(p) and not (place and place.engine == self) then upcast.cast(p) end
    end
  end

  --- Cuts the model anew. On all ranks, which have agreed on the units.
  ---@param model accel.nn.Module
  ---@param units table[] of accel.shard.policy
  function Engine:follow(model, units)
    local _ <close> = accel.no_grad()
    self:reshard()
    for _, handle in ipairs(self.handles) do handle:remove() end
    local old, states = self.units, {}
    self.before, self.dissolved = {}, {}
    for _, unit in ipairs(old) do
      self.before[unit] = true
      if unit.grads then unit:close_grads() end
    end
    for _, optimizer in next, self.optimizers do states[optimizer] = {} end
    self.counter, self.rebuilt, self.completed, self.waiting, self.has = nil, false, nil, nil, nil
    self.forward_after, self.forward_learnt = nil, nil
    self:build(model, units)
    for _, unit in ipairs(old) do
      if self.before[unit] then dissolve(self, unit) end
    end
    local gone = self.dissolved
    self.before, self.dissolved = nil, nil
    for _, unit in ipairs(gone) do hand_on(self, unit, states) end
    for _, unit in ipairs(gone) do give_up(unit) end
    for optimizer, entries in next, states do owners.follow(optimizer, entries) end
  end
end
