--- A flat unit: parameters of one dtype, one behind the other in one flat tensor that is cut into equal parts, one for each
--- rank of a group. The parameters keep their identity and lie in the flat tensor; the engine (engine.lua) says when it
--- is gathered, when gradients are reduced, and who steps.
---
--- Three ways in which the flat tensor lies, `kind`:
---   shared     the ranks of one machine map it, so that it is there once: what its owners wrote is gathered already
---   gathered   it has bytes between gather and reshard only; the own part lies apart
---   whole      every rank has all of it; the own part is a view
---
--- Gradients of a backward are accumulated into `grads`, flat as the parameters, in memory that local ranks map. Once
--- they are reduced, the own part's mean is what the pieces have as ->grad: a *piece* is what the own part holds of a
--- parameter, a flat view that stands in for it in optimizers.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.shard.core"
local deferred = require "accel.optim.deferred"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"
local plan = require "accel.shard.plan"
local raise = require "accel.util.raise"

local unscoped = accel.unscoped

---@class accel.shard.Unit
---@field name string the module's, "" the root
---@field kind "shared"|"gathered"|"whole"
---@field params accel.Tensor[]
---@field names string[] from the root
---@field flat accel.Tensor all parameters
---@field own accel.Tensor this rank's part
---@field pieces (accel.Tensor|false)[] by parameter; false where the own part has nothing of it
---@field grads accel.Tensor? while a backward fills it
local Unit = class("accel.shard.Unit")

local function numels_of(params)
  local numels = {}
  for i, p in ipairs(params) do numels[i] = p:numel() end
  return numels
end

--- Collective over the group. Parameters become those of the group's first rank.
---@param list table of plan.kinds
---@param names string[] of the parameters in the list
---@param o {name: string, group: any, kind: string, owner: integer, sync: boolean, gather: function, note:
--- function} note: called with every gather
function Unit:init(list, names, o)
  self.name, self.names, self.kind, self.group = o.name, names, o.kind, o.group
  self.gather_fn, self.note = o.gather, o.note
  self.params, self.learns, self.dtype, self.device = table.move(list, 1, #list, 1, {}), list.learns, list.dtype,
    list.device
  self.numels = numels_of(list)
  self.rank, self.size = dist.get_rank(o.group), dist.get_world_size(o.group)
  local l = plan.unit(self.numels, self.size, list[1]:element_size())
  self.offsets, self.count, self.part, self.used = l.offsets, l.count, l.part, l.used
  local _ <close> = accel.no_grad()
  self.flat = unscoped(function() return self:make(o) end)
  unscoped(self.fill, self, o.sync)
  for i, p in ipairs(self.params) do
    p.grad = nil
    core.bind(p, self.flat, self.offsets[i])
  end
  if self.kind == "gathered" then core.set(self.flat, nil) end
  self.pieces = {}
  for i in ipairs(self.params) do self.pieces[i] = self.learns and self:piece_of(self.own, i) or false end
end

function Unit:make(o)
  if self.kind == "shared" then return core.shared(self.group, self.count, self.dtype, o.owner) end
  if self.kind == "whole" then return flat(self.count, self.dtype, self.device) end
  local weak = setmetatable({ self }, { __mode = "v" })
  return core.gathered(self.name, self.count, self.dtype, self.device, function() weak[1]:gather_fn() end)
end

--- Puts the parameters' values into the flat tensor, and sets the own part.
function Unit:fill(sync)
  local whole = self.flat
  if self.kind == "gathered" then
    whole = accel.empty(self.count, { dtype = self.dtype, device = self.device })
    core.set(self.flat, whole)
  end
  if self.kind ~= "shared" or self.rank == 0 then
    whole:zero_()
    for i, p in ipairs(self.params) do
      whole:narrow(1, self.offsets[i] + 1, self.numels[i]):copy_(p:detach():reshape(-1))
    end
  end
  if self.kind == "shared" then
    dist.barrier { group = self.group }
  elseif self.size > 1 and sync then
    dist.broadcast(whole, { group_src = 0, group = self.group })
  end
  local own = whole:narrow(1, self.rank * self.part + 1, self.part)
  self.own = self.kind == "gathered" and own:clone() or own
end

--- What of parameter i lies in a flat tensor as long as the own part; false for nothing.
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

--- Begins to bring the whole parameters, without waiting.
function Unit:start_gather()
  if self.kind ~= "gathered" or self.coming or core.there(self.flat) then return end
  self.note()
  local _ <close> = accel.no_grad()
  local whole = unscoped(accel.empty, self.count, { dtype = self.dtype, device = self.device })
  self.coming = {
    whole = whole,
    work = dist.all_gather_into_tensor(whole, self.own, { group = self.group, async_op = true }),
  }
end

--- The whole parameters are there afterwards. A collective, unless they are there.
function Unit:gather()
  if self.kind ~= "gathered" or core.there(self.flat) then return end
  self:start_gather()
  local coming = self.coming
  self.coming = nil
  coming.work:wait()
  core.set(self.flat, coming.whole)
end

--- Gives the memory of the whole parameters back.
function Unit:reshard()
  if self.kind ~= "gathered" then return end
  if self.coming then
    self.coming.work:wait()
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

--- Gives ranks what owners wrote to their parts: after a step. Returns a work to wait for, or nil.
function Unit:publish()
  if self.kind == "whole" and self.size > 1 then
    return dist.all_gather_into_tensor(self.flat, self.own, { group = self.group, async_op = true })
  end
  self:reshard()
end

-- Gradients --------------------------------------------------------------------------------------

--- Makes room for the gradients of a backward: parameters accumulate straight into it.
function Unit:open_grads()
  if self.grads then return self:move_reduced() end
  local _ <close> = accel.no_grad()
  self.grads = unscoped(flat, self.count, self.dtype, self.device)
  self.views = {}
  for i, p in ipairs(self.params) do
    self.views[i] = unscoped(function()
      return self.grads:narrow(1, self.offsets[i] + 1, self.numels[i]):view(p.shape)
    end)
    p:set_grad_slot_(self.views[i])
  end
end

--- Reduced gradients that lie in `grads` make room for those of another backward.
function Unit:move_reduced()
  if self.reduced_in_place and self:has_reduced() then
    local copy = unscoped(self.reduced.clone, self.reduced)
    self:hand_out(copy, false)
  end
  self.reduced_in_place = false
end

--- Whether a piece still has the gradient that was reduced before.
function Unit:has_reduced()
  if not self.reduced then return false end
  for _, piece in ipairs(self.pieces) do
    if piece and piece.grad ~= nil then return true end
  end
  return false
end

--- Gives back the memory of gradients that were reduced.
function Unit:close_grads()
  for _, p in ipairs(self.params) do
    p.grad = nil
    p:set_grad_slot_(nil)
  end
  self.grads, self.views = nil, nil
end

--- Parameter i's gradient into its place, zeros where there is none. Returns whether there was one.
function Unit:collect(i)
  local p, view = self.params[i], self.views[i]
  local g = p.grad
  if g == nil then
    view:zero_()
  elseif g ~= view then
    view:copy_(g)
  end
  return g ~= nil
end

--- The pieces' gradients become views of t, as long as the own part. all: also of pieces that have none.
function Unit:hand_out(t, all)
  self.reduced = t
  for i, piece in ipairs(self.pieces) do
    if piece and (all or piece.grad ~= nil) then piece.grad = self:piece_of(t, i) end
  end
end

--- The own part's mean gradient has come: it is added to what the pieces have, or becomes it.
---@param mean accel.Tensor as long as the own part
---@param in_place boolean it may stay where it lies
---@param used (fun(i: integer): boolean) whether any rank has a gradient for parameter i
function Unit:take(mean, in_place, used)
  local _ <close> = accel.no_grad()
  if self:has_reduced() then
    local pieces = {}
    for _, piece in ipairs(self.pieces) do pieces[#pieces + 1] = piece or nil end
    deferred.among(pieces)
    for i, piece in ipairs(self.pieces) do
      if piece and used(i) then
        local new = self:piece_of(mean, i)
        if piece.grad == nil then
          piece.grad = unscoped(new.clone, new)
        else
          piece.grad:add_(new)
        end
      end
    end
    return
  end
  if not in_place then mean = unscoped(mean.clone, mean) end
  self:hand_out(mean, true)
  self.reduced_in_place = in_place
  for i, piece in ipairs(self.pieces) do
    if piece and not used(i) then piece.grad = nil end
  end
end

--- Drops all gradients.
function Unit:drop_grads()
  for i, p in ipairs(self.params) do
    p.grad = nil
    if self.pieces[i] then self.pieces[i].grad = nil end
  end
  self.reduced = nil
end

return Unit
