--- The update of an elastic job as a transaction: all ranks that are left apply it, or all of them do it again. Made by
--- accel.accelerator.elastic, which knows the loop, the loaders and the gradients. This file knows the phases.
---
---   idle      between two updates
---   open      from the first backward on. Nothing but gradients changes
---   applying  every rank had its gradients: the optimizer may step. Nothing that follows needs another rank
---   void      ranks were lost and the update begins again with the next batch. Until then nothing counts
---
--- Before an optimizer steps, ranks vote. A rank publishes `prepared` when it has the averaged gradients, then meets the
--- others at a barrier, then publishes `applying`. When ranks are lost, the launcher compares the phases of all ranks. If
--- some rank applies update u, or all had prepared it, the ranks that are left apply u. Otherwise they do it again, all
--- of its micro-batches, in new shares. That costs at most the computation of one update. In return there is one rule for
--- a loss at any instant, and each rank again has consecutive micro-batches, as accel.dist.quota deals them.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local raise = require "accel.util.raise"
local tree = require "accel.elastic.tree"

---@class accel.elastic.Transaction
---@field step integer updates that count
---@field state "idle"|"open"|"applying"|"void"
---@field last_update table? of the last update: step, loss, generation, micro_batches, redone
---@field alone (fun(fn: function): any ...)? makes calls of all ranks while this one runs the script alone
---@field asked boolean? ranks join or leave at the next boundary between two updates
---@field changes table[] changes of membership that callbacks have not seen yet
---@field done integer calls of repeat_call that are complete
---@field nested boolean repeat_call or a callback runs, which is made again as a whole
local Transaction = class("accel.elastic.Transaction")

---@class accel.elastic.Owner
---@field settle fun(self) waits for collectives under way, whatever becomes of them
---@field regroup fun(self, change: table, again: boolean, place: integer) takes over the new ranks. again: the update begins again. place: of
---  the call that is made again, 0 if there is none
---@field heal fun(self, change: table) gives the state of the job to ranks that joined
---@field complete_saves fun(self) ends saves under way, since a rank that joins has no part in them
---@field leave fun(self) ends the program of this rank, which was asked to leave
---@field commit fun(self) changes that belong to the update, besides the optimizer's

---@param core table accel.elastic.core: phase, recover, generation
---@param owner accel.elastic.Owner
---@param micro_batches integer of an update over all ranks
function Transaction:init(core, owner, micro_batches)
  self.core, self.owner, self.micro_batches = core, owner, micro_batches
  self.step, self.state, self.redone = 0, "idle", 0
  self.losses, self.weights = {}, {}
  self.changes, self.done, self.nested = {}, 0, false
end

--- Before a backward. Returns false if it counts for nothing, since the update begins again with the next batch.
---@param steps integer updates that a checkpoint brought, for the first one
---@return boolean
function Transaction:begin(steps)
  if self.state == "void" then return false end
  if self.state == "applying" then
    raise "backward: an elastic job makes one update of its micro-batches: run all backwards of a batch before the first optimizer:step()"
  end
  if self.state == "open" then return true end
  if steps > self.step then self.step = steps end
  self.state, self.losses, self.weights = "open", {}, {}
  self.core.phase("begin", self.step + 1)
  return true
end

--- The loss of a micro-batch, for last_update.
---@param place integer of the update's micro-batches, from 1
---@param loss number
---@param weight number
function Transaction:note(place, loss, weight)
  self.losses[place] = (self.losses[place] or 0) + loss
  self.weights[place] = (self.weights[place] or 0) + weight
end

--- The update is abandoned: the loop over the loader was left inside it.
function Transaction:abandon()
  if self.state ~= "applying" then self.state = "idle" end
end

local function is_membership(err) return type(err) == "table" and err.code == "membership" end

local PLACES <const> = 64
local PLAIN <const> = { complete = function() end, again = function() return true end, place = function() return 0 end }

--- Whether the call of repeat_call that is under way is complete. A rank that waits in the next call has seen that all had made this one, so
--- ranks are apart by one at most. Returns the greatest place (see repeat_call) of the calls that are complete on no rank.
local function compare_calls(self)
  local call, place = self.call, 0
  if call then place = (self.done + 1) * PLACES + math.min(call.place(), PLACES - 1) end
  local t = accel.tensor({ self.done, place }, { dtype = "i64", device = "cpu" })
  dist.all_reduce(t, "max")
  local most, furthest = table.unpack(t:tolist())
  if most > self.done then
    self.done, self.call = most, nil
    if call then call.complete() end -- a rank that joined has made none
  end
  return furthest // PLACES > most and furthest % PLACES or 0
end

--- What follows a generation, as far as it needs the other ranks. Returns the place of the call that is made again.
local function meet(self, change)
  local place = change.kind == "lost" and compare_calls(self) or 0 -- planned changes are between two calls
  if #change.healing > 0 then
    self.owner:regroup(change, false, place)
    self.owner:heal(change)
  end
  return place
end

--- Takes over a generation, and those that follow if ranks are lost meanwhile. Ranks that joined get the state of the job here.
local function enter(self, change)
  local through, place
  repeat
    if change.leaves then self.owner:leave() end
    self.asked = false
    if change.rank_before >= 0 then change.step = self.step + (self.state == "open" and 1 or 0) end
    if change.kind ~= "none" then self.changes[#self.changes + 1] = change end
    through, place = pcall(meet, self, change)
    if not through then
      if not is_membership(place) then error(place, 0) end
      self.owner:settle()
      change = self.core.recover()
    end
  until through
  if #change.healing > 0 then return end -- it has regrouped already
  local again = self.state == "open" and change.committed < self.step + 1
  self.owner:regroup(change, again, place)
  if again then
    self.state, self.redone = "void", self.redone + self.micro_batches
  end
end

--- Takes part in forming the new world after ranks were lost.
local function recover(self)
  self.owner:settle()
  enter(self, self.core.recover())
end

--- This rank is not a member yet. It waits until it is, with the state of the job.
function Transaction:join() enter(self, self.core.join()) end

--- Calls fn, which all ranks call between two updates. If ranks are lost meanwhile, the others call it again. It ends with a barrier: once a
--- rank is through, all have their results and return these.
---@param fn function
---@param o? {complete: fun(), again: (fun(): boolean), place: (fun(): integer), errors: boolean?} complete is called once the call is. again:
---  whether to call fn again after a loss, otherwise it returns nothing. place: a number below 64 that the owner learns of calls that are
---  complete on no rank. errors: an error of fn is a result, which all ranks have
---@return any ... results of fn
function Transaction:repeat_call(fn, o)
  if self.alone then return self.alone(fn) end
  o = o or PLAIN
  local n = self.done + 1
  local _ <close> = guard(function() self.call, self.nested = nil, false end)
  repeat
    self.call, self.nested = o, true
    local results = table.pack(pcall(fn))
    local through, why = results[1], results[2]
    if through or o.errors and not is_membership(why) then through, why = pcall(dist.barrier) end
    if through then
      self.done, self.call = n, nil
      o.complete()
    else
      if not is_membership(why) then error(why, 0) end
      recover(self)
    end
    if self.done >= n then
      if not results[1] then error(results[2], 0) end
      return table.unpack(results, 2, results.n)
    end
  until not o.again()
end

--- Calls fn, which may wait for other ranks. If ranks were lost meanwhile, it returns false, in the new world.
---@param fn function
---@param ... any
---@return boolean through
---@return any ... results
function Transaction:run(fn, ...)
  local results = table.pack(pcall(fn, ...))
  if results[1] then return table.unpack(results, 1, results.n) end
  if not is_membership(results[2]) then error(results[2], 0) end
  recover(self)
  return false
end

--- The losses of all ranks' micro-batches: their places are apart, so that sums have one term each. Also compares the ranks' seeds, since a
--- micro-batch may move to another rank.
local function exchange(self)
  local m, list, seed = self.micro_batches, {}, accel.get_rng_state().seed
  for i = 1, m do list[i], list[m + i] = self.losses[i] or 0.0, self.weights[i] or 0.0 end
  list[2 * m + 1], list[2 * m + 2] = (seed & 0xffffffff) + 0.0, (seed >> 32) + 0.0
  list[2 * m + 3] = self.core.asked() and 1.0 or 0.0
  local _ <close> = accel.no_grad()
  local t = accel.tensor(list, { dtype = "f64", device = "cpu" })
  dist.all_reduce(t)
  local all, size = t:tolist(), dist.get_world_size()
  if all[2 * m + 1] ~= size * list[2 * m + 1] or all[2 * m + 2] ~= size * list[2 * m + 2] then
    raise("optimizer:step(): the seed of rank %d differs from another rank's, and an elastic job needs one seed, since a rank may take over"
      .. " the micro-batches of another; leave out device_specific in set_seed, or seed all ranks alike", dist.get_rank())
  end
  self.asked = all[2 * m + 3] > 0 -- the same on all ranks
  return tree.sum(table.move(all, 1, m, 1, {})) / tree.sum(table.move(all, m + 1, 2 * m, 1, {}))
end

--- Before the first step of an update. Returns whether to apply it.
---@return boolean
function Transaction:vote()
  if self.state ~= "open" then return self.state ~= "void" end
  local through, loss = self:run(exchange, self)
  if not through then return false end
  local u = self.step + 1
  self.core.phase("prepared", u)
  self:run(dist.barrier) -- ranks that were lost meanwhile may have voted, so only recover tells
  if self.state == "void" then return false end
  self.step, self.state = u, "applying"
  self.core.phase("applying", u)
  self.last_update = {
    step = u, loss = loss, generation = self.core.generation(), micro_batches = self.micro_batches, redone = self.redone,
  }
  self.redone = 0
  self.owner:commit()
  return true
end

--- Between two batches of the loader that trains. complete: the last batch was this rank's last one of an update.
---@param complete boolean
---@param starts boolean the next batch is this rank's first one of an update
---@param call fun(change: table) what follows each change. Called again as a whole if ranks are lost in it
---@param stays boolean? the pass goes on, so that all ranks are at the same place of the script
function Transaction:between(complete, starts, call, stays)
  if complete and self.state == "open" then self:vote() end -- an update that no optimizer stepped counts as well
  if self.state == "applying" then
    self.core.phase("applied", self.step)
    self.state = "idle"
  elseif self.state == "void" then
    self.state = "idle"
  end
  if self.asked and starts and stays and self.state == "idle" then
    self.owner:complete_saves()
    if self.asked then enter(self, self.core.change()) end -- else a loss came first
  end
  while starts and #self.changes > 0 do
    local change = self.changes[1]
    self:repeat_call(function() call(change) end)
    table.remove(self.changes, 1)
  end
end

return Transaction
