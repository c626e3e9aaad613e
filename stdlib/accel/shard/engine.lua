--- The engine of one sharded model: which unit is gathered when, and how gradients of a backward become means of the parts.
--- nn.parallel.FullyShardedDataParallel and accelerator:prepare make it. It has the interface of accel.dist.Reducer that
--- the Accelerator's update uses (counter, micro_batches, size, reduced, stepped).
---
--- In a backward, a hook before each gradient prepares its unit's buffer, and a hook after it counts. A unit with
--- complete gradients is handed to an asynchronous reduce_scatter. Units go strictly in one order, so that all ranks
--- start the same collectives in the same order. The engine then waits for the previous one, so that at most two units'
--- gradients are whole. At the end of the backward (accel.queue_callback) the rest goes, missing gradients as zeros,
--- and ranks tell each other which parameters have any gradient at all: the others keep none.
---
--- Parameters are gathered before a unit's forward (hooks of its module), and in backward when the first op needs them
--- (core.gathered). They are resharded after the forward, when the unit's gradients are complete, at the end of the
--- backward, and after every step.
local accel = require "accel"
local Unit = require "accel.shard.unit"
local class = require "accel.util.class"
local core = require "accel.optim.core"
local cuts = require "accel.shard.cuts"
local dist = require "accel.dist"
local gathers = require "accel.shard.order"
local memory = require "accel.shard.core"
local owners = require "accel.shard.owners"
local quantized = require "accel.shard.quantized"
local raise = require "accel.util.raise"

---@class accel.shard.Engine
---@field who string begins messages
---@field units accel.shard.Unit[] flat units
---@field params accel.Tensor[] that learn
---@field names string[]
---@field stepped accel.Tensor[] their pieces, which optimizers step on
---@field sync boolean whether the backward under way reduces
---@field reduced boolean false: a rank can overflow alone
---@field apart accel.shard.Engine? of parameters of the same model that other ranks share (experts)
local Engine = class("accel.shard.Engine")

---@param model accel.nn.Module
---@param units table[] of accel.shard.policy
---@param o {who: string, group: any, replicas: any, cut: {parameters: boolean, gradients: boolean}, reshard: boolean,
--- share: boolean, world: boolean, micro_batches: integer?, sync: boolean, syncs: (fun(): boolean),
--- backward_prefetch: string?, forward_prefetch: boolean?, dtypes: (fun(p: accel.Tensor): table)?, device: string?, zero: table?, tier:
--- accel.offload.Training?} tier: where parts of training rest; syncs: whether a backward that begins is to reduce; dtypes: of a
--- parameter {dtype =, master =, reduce =} (Unit:init); device: of what is on the meta device now;
--- zero: sizes and bits of ZeRO, see accel.deepspeed.units
function Engine:init(model, units, o)
  self.who, self.o, self.cut, self.reduced, self.sync, self.syncs = o.who, o, o.cut, false, true, o.syncs
  self.size = dist.get_world_size(o.group) * (o.replicas and dist.get_world_size(o.replicas) or 1)
  self.piece_of = setmetatable({}, { __mode = "kv" }) -- piece -> its parameter
  self.optimizers, self.n_optimizers = setmetatable({}, { __mode = "v" }), 0 -- by a number that is the same on all ranks
  if o.zero and o.zero.quantized_gradients and (o.world or o.replicas) then
    raise("%s: zero_quantized_gradients rounds sent gradients, so it supports neither deterministic = \"world\" nor stage 0",
      self.who)
  end
  self.groups = o.zero and cuts.groups(o.zero, o.group) or {}
  self.tier = o.tier
  if o.tier and o.tier.delayed then o.tier.delayed.engine = self end
  self:build(model, units)
end

--- Makes units of the parameters, and their hooks: at the start, and when parameters were exchanged (engine_changes).
---@param model accel.nn.Module
---@param units table[] of accel.shard.policy
function Engine:build(model, units)
  local o = self.o
  self.units, self.params, self.names, self.place, self.stepped, self.number = {}, {}, {}, {}, {}, {}
  self.came, self.touched, self.active, self.order_of_gathers = {}, {}, {}, gathers.new()
  self:make_units(units)
  if self.shares then cuts.say_shared(o.zero) end
  self.n = #self.params
  self.used = accel.unscoped(accel.zeros, self.n + 2, { dtype = "i32", device = "cpu" })
  self.order = {}
  for i = #self.units, 1, -1 do
    if self.units[i].learns then self.order[#self.order + 1] = self.units[i] end
  end
  if o.world then self:count_micro_batches() end
  self:add_hooks()
  if o.cut.parameters or (o.tier and o.tier.parameters) then self:add_module_hooks(model, units) end
  owners.version = owners.version + 1
end

--- How the flat units lie.
local function kind_of(o, device, persistent)
  local size = dist.get_world_size(o.group)
  if o.tier and o.tier.parameters and not persistent then return "gathered" end
  if size > 1 and (device == "cpu" or device == "meta") and o.share and memory.shares(o.group) then return "shared" end
  return size > 1 and o.cut.parameters and not persistent and "gathered" or "whole"
end

--- A new unit of the parameters of a list. A collective.
function Engine:new_unit(list, names, u)
  local weak, dtypes = setmetatable({ self }, { __mode = "v" }), self:dtypes_of(list[1])
  local unit
  unit = Unit(list, names, {
    name = u.name, group = self.o.group, kind = kind_of(self.o, list.device, list.persistent), sync = self.o.sync,
    owner = #self.units % dist.get_world_size(self.o.group), dtype = dtypes.dtype, master = dtypes.master,
    reduce = dtypes.reduce, secondary = self.groups.secondary,
    quantized = self.o.zero and self.o.zero.quantized_weights, tier = self.o.tier,
    gather = function() weak[1]:gather_in_backward(unit) end,
    note = function() weak[1].order_of_gathers:note(unit) end,
  })
  unit.persistent = list.persistent or false
  if self.o.replicas then
    dist.broadcast(unit.own, { group_src = 0, group = self.o.replicas })
    unit:publish_and_wait()
  end
  return unit
end

function Engine:make_units(units)
  self.units_of = {} -- by position of the module's unit
  local counts = { persistent = 0 }
  local cut_as = setmetatable({ dtypes = function(p) return self:dtypes_of(p) end }, { __index = self.o })
  for at, u in ipairs(units) do
    self.units_of[at] = {}
    for _, list in ipairs(cuts.lists(u.params, cut_as, counts)) do
      local names = {}
      for k, i in ipairs(list.at) do names[k] = (u.name == "" and "" or u.name .. ".") .. u.names[i] end
      local unit = self:kept_unit(list, names, u) or self:new_unit(list, names, u)
      self.units[#self.units + 1], unit.at, unit.module_at = unit, #self.units + 1, at
      self.shares = self.shares or unit.kind == "shared"
      table.insert(self.units_of[at], unit)
      for i, p in ipairs(unit.params) do
        owners.of[p] = { engine = self, unit = unit, i = i }
        local piece = unit.pieces[i]
        if piece then owners.engine_of[piece], self.piece_of[piece] = self, p end
        if unit.learns then
          local n = #self.params + 1
          self.params[n], self.names[n], self.place[n], self.number[p] = p, names[i], { unit = unit, i = i }, n
          if piece then self.stepped[#self.stepped + 1] = piece end
        end
      end
    end
  end
end

function Engine:add_hooks()
  local weak = setmetatable({ self }, { __mode = "v" })
  self.queue = function()
    accel.queue_callback(function()
      if weak[1] then weak[1]:finish() end
    end)
  end
  self.handles = {}
  for i, p in ipairs(self.params) do
    self.handles[#self.handles + 1] = p:register_hook(function(grad)
      if weak[1] then weak[1]:open(i) end
      grad:release() -- this handle, that it does not wait for the collector
    end)
    self.handles[#self.handles + 1] = p:register_post_accumulate_grad_hook(function()
      if weak[1] then weak[1]:on_grad(i) end
    end)
  end
end

require "accel.shard.engine_changes"(Engine)
require "accel.shard.engine_forward"(Engine)

-- Backward ---------------------------------------------------------------------------------------

--- Before a forward: cleans up after a failed backward.
function Engine:prepare()
  if self.in_backward() then return end
  self.active = {}
  if self.running or self.finishing then self:recover() end
  if self.tier and self.tier.delayed and not accel.is_grad_enabled() then self.tier.delayed:flush() end
  if self.apart then self.apart:prepare() end
end

--- Reduces over all ranks of the model.
function Engine:all_reduce(t, op)
  dist.all_reduce(t, { op = op, group = self.o.group })
  if self.o.replicas then dist.all_reduce(t, { op = op, group = self.o.replicas }) end
end

--- The first gradient of a backward is about to come.
function Engine:begin()
  self.queue()
  self.sync = self.syncs()
  self.running, self.next, self.arrived, self.had = true, 1, {}, {}
  if self.counter then self:begin_micro_batch(self.sync) end
  for _, unit in ipairs(self.order) do
    unit.pending, unit.work = #unit.params, nil
    if not unit:has_reduced() then unit.reduced, unit.reduced_in_place = nil, false end
  end
  self.completed = not self.rebuilt and {} or nil
end

--- The backward before did not end as it should.
function Engine:recover()
  for _, unit in ipairs(self.units) do
    if unit.work then pcall(unit.work.wait, unit.work) end
    unit.work = nil
  end
  self.running, self.finishing, self.waiting = false, false, nil
  if self.tier then pcall(self.tier.settle, self.tier) end -- its failures are reported already, or concern gradients that nobody uses
  self:reshard()
end

--- A gradient is about to be accumulated.
function Engine:open(i)
  if not self.running then self:begin() end
  self.place[i].unit:open_grads()
  if self.counter then self:before_grad(i) end
end

function Engine:on_grad(i)
  if not self.sync then return end
  if self.arrived[i] then
    raise("%s: '%s' got a second gradient within one backward; recompute parts of the model with"
      .. " accel.autograd.checkpoint, which runs no separate backward", self.who, self.names[i])
  end
  self.arrived[i] = true
  local unit = self.place[i].unit
  unit.pending = unit.pending - 1
  if unit.pending > 0 then return end
  if self.completed then self.completed[#self.completed + 1] = unit.at end
  while self.order[self.next] and self.order[self.next].pending == 0 do
    self.next = self.next + 1
    self:launch(self.order[self.next - 1])
  end
end

--- Puts all gradients of a unit into their places. Those that are missing are zeros.
function Engine:collect_unit(unit)
  for i, p in ipairs(unit.params) do
    local n = self.number[p]
    if self.counter and not self.came[n] then p.grad = nil end
    self.had[n] = unit:collect(i) or self.counter and self.touched[n] or false
  end
end

--- Starts the reduction of a unit with complete gradients, and takes the result of the previous unit.
function Engine:launch(unit)
  local _ <close> = accel.no_grad()
  unit:open_grads()
  self:collect_unit(unit)
  local sum, blocks
  if self.counter then sum, blocks = self.counter:finish(unit.at, 0, unit.grads, self.exchange ~= nil)
  else sum = unit:to_wire(unit.grads) end
  unit.sum_apart = sum == unit.grads and self:reduces_apart(unit)
  local own = unit.sum_apart and accel.unscoped(accel.empty, unit.part, { dtype = unit.wire, device = unit.device }) or unit:part_of(sum)
  unit.sum, unit.wired = own, not self.counter and sum ~= unit.grads and sum or nil
  if self.exchange then
    unit.work = self.exchange:reduce_scatter(own, sum, blocks)
  elseif unit.size > 1 and self.o.zero and self.o.zero.quantized_gradients then
    unit.work = quantized.reduce_scatter(own, sum, { group = self.o.group, node = self.groups.node, across = self.groups.across,
      unit = unit })
  elseif unit.size > 1 then
    local op = (self.counter or self.o.replicas) and "sum" or "mean"
    unit.work = dist.reduce_scatter_tensor(own, sum, { op = op, group = self.o.group, async_op = true })
  end
  if self.o.replicas and not self.exchange then
    local op = unit.size == 1 and not self.counter and "mean" or "sum"
    unit.work = dist.all_reduce(own, { op = op, group = self.o.replicas, async_op = true })
  end
  unit:reshard()
  if self.tier and self.tier.parameters then self:reshard_root() end
  if self.o.backward_prefetch == "BACKWARD_POST" and unit.follows then unit.follows:start_gather() end
  if self.o.zero and not self.o.zero.overlap then return self:settle(unit) end
  local before = self.waiting
  self.waiting = unit
  if before then self:settle(before) end
end

--- Whether a unit's sum goes straight to the own part's memory, which saves a copy.
function Engine:reduces_apart(unit)
  local o = self.o
  return unit.size > 1 and self.cut.gradients and unit.wire == unit.master and not self.counter and not o.replicas
    and not (o.zero and o.zero.quantized_gradients) and not (self.tier and self.tier.optimizer)
end

--- The root's parameters stay from the forward, since its last layers begin the backward. Once another unit is through they go: its first
--- layers (an embedding) seldom need them again, and get them if they do.
function Engine:reshard_root()
  for _, unit in ipairs(self.units) do
    if unit.name == "" then unit:reshard() end
  end
end

--- Waits for a unit's reduction. Its memory is freed if only the parts are kept.
function Engine:settle(unit)
  if unit.work then
    unit.work:wait()
    unit.work = nil
  end
  if self.counter then return end -- scaled at the end, when the number of micro-batches is agreed on
  if self.o.replicas and unit.size > 1 then unit.sum:mul_(1 / self.size) end
  self:keep_part(unit)
end

--- If gradients are sharded, the own part is copied out of the whole. Pieces get it at the end of the backward, when it
--- is known who has gradients.
function Engine:keep_part(unit)
  if self.tier and self.tier.optimizer then
    local all = true
    for _, p in ipairs(unit.params) do all = all and self.had[self.number[p]] end
    return self.tier:keep_gradient(unit, all, self.finishing)
  end
  local apart, sum = self.cut.gradients and self.size > 1, unit.sum
  if sum.dtype ~= unit.master then unit.sum = accel.unscoped(sum.to, sum, unit.master)
  elseif apart and not unit.sum_apart then unit.sum = accel.unscoped(sum.clone, sum) end
  if unit.sum ~= sum then sum:release() end
  if unit.wired and unit.sum ~= sum then unit.wired:release() end
  unit.wired = nil
  if apart then unit:close_grads() end
end

--- The end of the outermost backward.
function Engine:finish()
  self.running = false
  local _ <close> = accel.no_grad()
  if not self.sync then
    if self.counter then self:end_micro_batch() end
    for _, unit in ipairs(self.units) do unit:reshard() end
    return
  end
  self.finishing = true -- until all of it is done: the next forward cleans up after a failure
  while self.order[self.next] do
    self.next = self.next + 1
    self:launch(self.order[self.next - 1])
  end
  if self.waiting then self:settle(self.waiting) end
  self.waiting = nil
  if self.tier then self.tier:settle() end
  local has = {}
  for i = 1, self.n do has[i] = self.had[i] and 1 or 0 end
  if self.size > 1 then
    local sum = self.order_of_gathers.sum
    has[self.n + 1], has[self.n + 2] = sum, -sum
    self.used:copy_(accel.tensor(has, { dtype = "i32", device = "cpu" }))
    self:all_reduce(self.used, "max")
    has = self.used:tolist()
    if has[self.n + 1] ~= -has[self.n + 2] then self.order_of_gathers:differs(self) end
    self.order_of_gathers:reset()
  end
  self.has = has
  local scale = self.counter and self:world_scale()
  for _, unit in ipairs(self.order) do
    local sum, fresh = unit.sum, false
    unit.sum = nil
    if scale then
      sum:mul_(scale)
      if sum.dtype ~= unit.master then sum, fresh = accel.unscoped(sum.to, sum, unit.master), true end
    end
    unit:take(sum, fresh or not self.counter, function(i) return has[self.number[unit.params[i]]] > 0 end)
    for _, p in ipairs(unit.params) do p.grad = nil end
  end
  if self.counter then self.counter:reset() end
  if self.statistics then self.statistics:commit() end
  self:reshard()
  if self.completed then self:rebuild() end
  self.finishing = false
end

--- Units are reduced in the order in which rank 0 completed them in the first backward.
function Engine:rebuild()
  local order, seen = self.completed, {}
  for _, at in ipairs(order) do seen[at] = true end
  for _, unit in ipairs(self.order) do
    if not seen[unit.at] then order[#order + 1] = unit.at end
  end
  if self.size > 1 and #order > 0 then
    local t = accel.tensor(order, { dtype = "i64", device = "cpu" })
    if self.o.replicas then dist.broadcast(t, { group_src = 0, group = self.o.replicas }) end
    dist.broadcast(t, { group_src = 0, group = self.o.group })
    order = t:tolist()
  end
  for k, at in ipairs(order) do
    self.order[k] = self.units[at]
    self.units[at].follows = order[k + 1] and self.units[order[k + 1]]
    self.units_of[self.units[at].module_at].next = self.units[at].follows -- after the last of its module
  end
  self.rebuilt, self.completed = true, nil
end

-- deterministic = "world" ------------------------------------------------------------------------

--- Whole gradients stay, since micro-batches are summed before they are cut.
function Engine:count_micro_batches()
  local flats = {}
  for _, unit in ipairs(self.order) do
    unit:open_grads()
    unit.grads:zero_()
    flats[unit.at] = unit.grads
  end
  self:count_in(flats)
end

--- Called by end_micro_batch: the result for parameter i.
function Engine:collect(i)
  local place = self.place[i]
  if not self.came[i] then self.params[i].grad = nil end
  place.unit:collect(place.i)
end

require "accel.dist.reducer_world"(Engine)

-- Steps ------------------------------------------------------------------------------------------

--- Before an optimizer writes to its pieces: no rank still reads parameters that lie there once.
function Engine:before_step()
  if core.count(self.params) > 0 then
    raise("%s: step: gradients were accumulated inside no_sync() and never reduced; run the last forward and backward of an"
      .. " update outside", self.who)
  end
  if self.shares then dist.barrier { group = self.o.group } end
end

--- After it: all ranks have all parameters, or gather them anew. all: also those that do not learn, when a state was loaded.
---@param all boolean?
function Engine:after_step(all)
  local works = {}
  for _, unit in ipairs(self.units) do
    local _ <close> = accel.no_grad()
    works[#works + 1] = (all or unit.learns) and unit:publish() or nil
  end
  for _, work in ipairs(works) do work:wait() end
  if self.shares then dist.barrier { group = self.o.group } end
  if self.tier and self.tier.delayed then self.tier.delayed:launch() end
end

--- All flat units of the model, including those shared with other ranks.
---@return accel.shard.Unit[]
function Engine:all_units()
  if not self.apart then return self.units end
  return table.move(self.apart.units, 1, #self.apart.units, #self.units + 1, { table.unpack(self.units) })
end

--- Whether whole parameters as their owners keep them are somewhere in parts only.
function Engine:gathers()
  if self.buffer_dtypes then return true end
  for _, unit in ipairs(self.units) do
    if unit.kind == "gathered" or unit.rounds then return true end
  end
  return self.apart ~= nil and self.apart:gathers()
end

--- Drops all gradients.
function Engine:zero_grad()
  for _, unit in ipairs(self.units) do unit:drop_grads() end
  if self.counter then self.counter:reset() end
  if self.apart then self.apart:zero_grad() end
end

return Engine
