--- A flat unit: parameters of one dtype, concatenated in one flat tensor that is cut into equal parts, one for each rank of
--- a group. The parameters keep their identity and are views of the flat tensor. The engine (engine.lua) decides when it is
--- gathered, when gradients are reduced, and who steps.
---
--- Three ways in which the flat tensor lies, `kind`:
---   shared     the ranks of one machine map it, so that it exists once: its owners' changes need no gathering
---   gathered   it has bytes only between gather and reshard. The own part is separate
---   whole      every rank has all of it. The own part is a view
---
--- Two dtypes: `dtype`, in which parameters are gathered and computed with, and `master`, in which the own part is kept. If
--- they differ, the own part is always separate, and publish rounds it into the flat tensor. Gradients: unit_grads.lua.
--- Gradients: unit_grads.lua. A *piece* is a parameter's range in the own part, a flat view that stands in for it in
--- optimizers.
local accel = require "accel"
local divided = require "accel.nn.divided"
local class = require "accel.util.class"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"
local plan = require "accel.shard.plan"
local quantized = require "accel.shard.quantized"
local raise = require "accel.util.raise"
local spans = require "accel.util.spans"

local unscoped = accel.unscoped

---@class accel.shard.Unit
---@field name string the module's, "" the root
---@field kind "shared"|"gathered"|"whole"
---@field params accel.Tensor[]
---@field names string[] from the root
---@field dtype string of the parameters while they are gathered
---@field master string of the own part
---@field flat accel.Tensor all parameters
---@field own accel.Tensor this rank's part
---@field apart boolean whether that is not in the device's memory
---@field pieces (accel.Tensor|false)[] by parameter. false if the own part has nothing of it
---@field grads accel.Tensor? while a backward fills it
local Unit = class("accel.shard.Unit")

local function numels_of(params)
  local numels = {}
  for i, p in ipairs(params) do numels[i] = p:numel() end
  return numels
end

local WIDTH <const> = { f64 = 8, f32 = 4, f16 = 2, bf16 = 2 }

--- Collective over the group. Parameters become the group's first rank's.
---@param list table of plan.kinds
---@param names string[] of the parameters in the list
---@param o {name: string, group: any, kind: string, owner: integer, sync: boolean, gather: function, note: function, dtype:
--- string?, master: string?, reduce: string?, quantized: boolean?, secondary: any, tier: accel.offload.Training?} note: called with every
--- gather; tier: where the own part and what belongs to it lie; dtype, reduce:
--- of parameters and of the reduction of their gradients where these are not what the parameters have now; master: of the own
--- part then; quantized, secondary: see accel.shard.quantized
function Unit:init(list, names, o)
  self.name, self.names, self.kind, self.group = o.name, names, o.kind, o.group
  self.gather_fn, self.note, self.tier = o.gather, o.note, o.tier
  if o.kind == "gathered" then self.quantized, self.secondary = o.quantized, o.secondary end
  self.params, self.learns, self.device = table.move(list, 1, #list, 1, {}), list.learns, list.device
  self.master, self.dtype = o.master or list.dtype, o.dtype or list.dtype
  self.apart = o.tier ~= nil and o.tier:apart_from(list.device)
  self.rounds = self.master ~= self.dtype or self.apart
  self:set_grad_dtypes(o.reduce)
  self.numels = numels_of(list)
  self.rank, self.size = dist.get_rank(o.group), dist.get_world_size(o.group)
  local l = plan.unit(self.numels, self.size, math.min(WIDTH[self.dtype] or 4, WIDTH[self.master] or 4))
  self.offsets, self.count, self.part, self.used = l.offsets, l.count, l.part, l.used
  local _ <close> = accel.no_grad()
  self.flat = unscoped(function() return self:make(o) end)
  unscoped(self.fill, self, o.sync)
  for _, p in ipairs(self.params) do p.grad = nil end
  self:bind(self.flat)
  local zero = divided.creation
  if zero then zero.forget(self.params) end
  if spans.running then spans.mark(self.own, spans.PARAMETER) end
  self.pieces = {}
  for i in ipairs(self.params) do self.pieces[i] = self:piece_of(self.own, i) end
end

function Unit:make(o)
  if self.kind == "shared" then return core.shared(self.group, self.count, self.dtype, o.owner) end
  if self.kind == "whole" then return flat(self.count, self.dtype, self.device) end
  local weak = setmetatable({ self }, { __mode = "v" })
  return core.gathered(self.name, self.count, self.dtype, self.device, function() weak[1]:gather_fn() end)
end

--- Parameters lie in this flat tensor from now on.
---@param t accel.Tensor
function Unit:bind(t)
  for i, p in ipairs(self.params) do core.bind(p, t, self.offsets[i]) end
end

--- This rank's part of a flat tensor.
---@param t accel.Tensor
---@return accel.Tensor
function Unit:part_of(t) return t:narrow(1, self.rank * self.part + 1, self.part) end

--- Copies the parameters' present values into a flat tensor, with zeros for meta parameters and gaps. Those created in shards
--- are gathered one after the other, on all ranks. t nil: only take part in gathering.
local function put_values(self, t)
  local zero = divided.creation
  if t then t:zero_() end
  for i, p in ipairs(self.params) do
    local place <close> = t and t:narrow(1, self.offsets[i] + 1, self.numels[i])
    local read = zero and place and zero.read(p, place)
    if zero and not read then zero.gather(p) end
    if not read and place and (p.device ~= "meta" or t.device == "meta") then place:copy_(p:detach():reshape(-1)) end
  end
end

--- Sets the own part and the gathered tensor from the values of the group's first rank. Without sync each part comes from the
--- rank that has it.
function Unit:fill(sync)
  local in_place = self.kind ~= "gathered" and not self.rounds
  if self.kind == "shared" and in_place and sync then
    put_values(self, self.rank == 0 and self.flat or nil)
    dist.barrier { group = self.group }
    self.own = self:part_of(self.flat)
    return
  end
  local whole = self.kind == "whole" and in_place and self.flat
    or accel.empty(self.count, { dtype = self.master, device = self.device })
  put_values(self, whole)
  if self.size > 1 and sync then dist.broadcast(whole, { group_src = 0, group = self.group }) end
  local part = self:part_of(whole)
  if self.kind == "gathered" and self.tier and self.tier.parameters then self.own = self.tier:keep(self, part)
  elseif self.apart then self.own = self.tier:keep_apart(part)
  else self.own = in_place and self:part_of(self.flat) or part:clone() end
  if whole ~= self.flat then
    if in_place then self.own:copy_(part) end
    part:release() -- at once: units are made one after the other
    whole:release()
  end
  if not in_place or not sync then self:publish_and_wait() end
end

--- The range of parameter i in a flat tensor as long as the own part, or false.
function Unit:piece_of(t, i)
  local l = { offsets = self.offsets, part = self.part }
  local first, last = plan.held(l, self.numels, i, self.rank)
  if not first then return false end
  return unscoped(t.narrow, t, 1, self.offsets[i] + first - self.rank * self.part + 1, last - first + 1)
end

--- The range of parameter i's elements that its piece is, from 0: first, count. nil: none.
function Unit:range(i)
  local first, last = plan.held({ offsets = self.offsets, part = self.part }, self.numels, i, self.rank)
  if first then return first, last - first + 1 end
end

-- Parameters -------------------------------------------------------------------------------------

--- Begins to bring the whole parameters, without waiting. exact: from the parts of all ranks, bit by bit, whatever is configured.
---@param exact boolean?
function Unit:start_gather(exact)
  if self.kind ~= "gathered" or self.coming or core.there(self.flat) then return end
  self.note()
  if self.home then return self.tier:start(self) end
  local _ <close> = accel.no_grad()
  if not exact and (self.quantized or self.secondary) then
    self.coming = quantized.start_gather(self)
    return
  end
  local whole = unscoped(accel.empty, self.count, { dtype = self.dtype, device = self.device })
  local part = self.own
  if self.apart then part = unscoped(accel.empty, self.part, { dtype = self.dtype, device = self.device }):copy_(part)
  elseif self.rounds then part = unscoped(part.to, part, self.dtype) end
  self.coming = {
    whole = whole, part = part, work = dist.all_gather_into_tensor(whole, part, { group = self.group, async_op = true }),
  }
end

--- The whole parameters are there afterwards. A collective, unless they are there. exact: see start_gather.
---@param exact boolean?
function Unit:gather(exact)
  if self.kind ~= "gathered" or core.there(self.flat) then return end
  self:start_gather(exact)
  if self.home then return self.tier:finish(self) end
  local coming = self.coming
  self.coming = nil
  coming.work:wait()
  core.set(self.flat, coming.whole)
  if not exact and (self.quantized or self.secondary) then quantized.keep_second(self, coming) end
  if spans.running then spans.mark(coming.whole, spans.PARAMETER) end
  coming.whole:release()
  if self.rounds and coming.part then coming.part:release() end
end

--- All parameters in their owners' precision: the flat tensor, gathered, or a separate tensor if that one is rounded.
---@return accel.Tensor
function Unit:gather_master()
  if self.tier and self.tier.delayed then self.tier.delayed:flush() end
  if not self.rounds then
    self:gather(true)
    return self.flat
  end
  if self.size == 1 and not self.apart then return self.own end
  local whole = unscoped(accel.empty, self.count, { dtype = self.master, device = self.device })
  local own = self.apart and self:part_of(whole):copy_(self.own) or self.own
  if self.size > 1 then dist.all_gather_into_tensor(whole, own, { group = self.group }) end
  return whole
end

--- Gives the memory of the whole parameters back.
function Unit:reshard()
  if self.kind ~= "gathered" then return end
  if self.coming then
    (self.coming.work or self.coming.read):wait()
    self.coming.whole:release()
    self.coming = nil
  end
  if not core.there(self.flat) then return end
  if core.written(self.flat) then
    core.set(self.flat, nil)
    raise("a parameter of the sharded unit '%s' was written to while it was gathered, which would be lost: change parameters"
      .. " inside summon_full_params", self.name)
  end
  core.set(self.flat, nil)
end

--- Sends the owners' changes of their parts to the ranks, after a step. Returns a work to wait for, or nil. Returns a work
--- to wait for, or nil. If the memory is shared, a barrier must follow.
function Unit:publish()
  self.second = nil
  if self.kind == "gathered" then return self:reshard() end
  local part = self.own
  if self.rounds then
    part = self:part_of(self.flat)
    part:copy_(self.own)
  end
  if self.kind == "whole" and self.size > 1 then
    return dist.all_gather_into_tensor(self.flat, part, { group = self.group, async_op = true })
  end
end

--- The same of one unit, whole.
function Unit:publish_and_wait()
  local work = self:publish()
  if work then work:wait() end
  if self.kind == "shared" then dist.barrier { group = self.group } end
end

require "accel.shard.unit_grads"(Unit)

return Unit
