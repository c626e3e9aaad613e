--- Averages gradients over ranks during backward, for nn.parallel.DistributedDataParallel.
---
--- Gradients are accumulated straight into buckets, flat tensors of memory that all local ranks map (gradient slots). A
--- hook on every parameter counts arrivals. A bucket with complete gradients is handed to an asynchronous all-reduce.
--- Buckets go strictly in order, so that all ranks start the same collectives in the same order. When the backward ends
--- (accel.queue_callback) the rest is waited for and ->grad of every parameter holds the mean.
---
--- Life of an update: prepare(sync) by the module's forward -> on_grad by hooks -> finish at the end of the backward. A
--- backward that follows prepare(false) only accumulates. A backward that follows prepare(false) only accumulates. The
--- next prepare reports parameters that a backward missed, since another backward may still reach them. With
--- find_unused they count as zeros at its end.
local accel = require "accel"
local Future = require "accel.dist.hooks.future"
local GradBucket = require "accel.dist.grad_bucket"
local buckets = require "accel.dist.buckets"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.optim.core"
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local WHO = "DistributedDataParallel"

local ADDED = "gradient that it did not get in the first backward, but static_graph = true requires all to be alike"
local SECOND = "second gradient since the last forward of the wrapped model, when its bucket may have left; add the"
  .. " losses and call backward once, or, where a part of the model is computed again in backward, wrap it with"
  .. " static_graph = true"

---@class accel.dist.Reducer
local Reducer = class("accel.dist.Reducer")

Reducer.who = WHO

local owners = setmetatable({}, { __mode = "k" }) -- parameter -> weak reference to the reducer whose hooks it has

---@param names string[]
---@param params accel.Tensor[] those that require gradients, in order of registration
---@param o {first: integer, cap: integer, group: any, find_unused: boolean, static: boolean, as_view: boolean, world:
--- boolean, micro_batches: integer?}
function Reducer:init(names, params, o)
  self.names, self.params, self.o, self.size = names, params, o, dist.get_world_size(o.group)
  self.n, self.layout = #params, 0
  self.views, self.bucket_of, self.arrived, self.fires, self.came, self.touched = {}, {}, {}, {}, {}, {}
  self.expects, self.reduced, self.unreduced, self.running = false, false, false, false
  self.dynamic = o.find_unused and not o.static -- which parameters are used is found out anew every time
  self.used = accel.unscoped(accel.zeros, self.n, { dtype = "i32", device = "cpu" })
  local order = {}
  for i = 1, self.n do order[i] = self.n + 1 - i end
  self:lay_out(buckets.assign(order, params, o.first, o.cap))
  self:add_hooks()
end

function Reducer:add_hooks()
  local weak = setmetatable({ self }, { __mode = "v" })
  local function finish()
    local reducer = weak[1]
    if reducer then reducer:finish() end
  end
  self.queue = function() accel.queue_callback(finish) end
  self.handles = {}
  for i, p in ipairs(self.params) do
    local before = owners[p] and owners[p][1]
    if before then before:detach() end
    owners[p] = weak
    self.handles[#self.handles + 1] = p:register_post_accumulate_grad_hook(function()
      local reducer = weak[1]
      if reducer then reducer:on_grad(i) end
    end)
    if self.counter then
      self.handles[#self.handles + 1] = p:register_hook(function()
        local reducer = weak[1]
        if reducer then reducer:before_grad(i) end
      end)
    end
  end
  -- Made after the handles, so that its finalizer runs before theirs.
  self.finalizer = setmetatable({ self.handles }, {
    __gc = function(finalizer)
      for _, handle in ipairs(finalizer[1]) do handle:remove() end
    end,
  })
end

--- Takes the hooks away: another reducer, or nobody, averages these parameters from now on.
function Reducer:detach()
  for _, handle in ipairs(self.handles) do handle:remove() end
  self.detached = true
end

--- Called before other parameters replace these. Raises during an update whose gradients ranks have not averaged.
---@param changes string the change, for the message
function Reducer:check_idle(changes)
  if self.incomplete then self:check_complete() end
  if self.running or (self.counter and self.counter.n > 0) or (self.unreduced and core.count(self.params) > 0) then
    raise("%s: the trained parameters changed while gradients of no_sync() were not averaged yet: %s; change them after optimizer:step()"
      .. " and zero_grad()", self.who, changes)
  end
end

--- Another reducer takes over: hooks and places of gradients go. Another reducer takes over: removes hooks and gradient slots.
--- Returns the present gradients, in separate memory.
---@return table<accel.Tensor, accel.Tensor> by parameter
function Reducer:give_up()
  local _ <close> = accel.no_grad()
  local gradients = {}
  self:detach()
  for _, p in ipairs(self.params) do
    local grad = p.grad
    if grad ~= nil then gradients[p] = accel.unscoped(grad.clone, grad) end
    p.grad = nil
    p:set_grad_slot_(nil)
  end
  return gradients
end

--- Whether ranks exchange which parameters are used: always if that may change, otherwise in the first update.
function Reducer:tracks_use() return self.dynamic or (self.o.static and not self.shared) end

require "accel.dist.reducer_memory"(Reducer)
require "accel.dist.reducer_world"(Reducer)

-- An update ---------------------------------------------------------------------------------------

--- Names of parameters, for messages.
function Reducer:named(list)
  local names, SHOWN = {}, 8
  for k = 1, math.min(#list, SHOWN) do names[k] = "'" .. self.names[list[k]] .. "'" end
  if #list > SHOWN then names[#names + 1] = ("... (%d in all)"):format(#list) end
  return table.concat(names, ", ")
end

local function nothing() end

--- After a failed backward: waits for its collectives, so that the buckets are free again.
function Reducer:recover()
  for _, b in ipairs(self.buckets) do
    if b.future then pcall(b.future.wait, b.future) end
    b.future = nil
  end
  self.running = false
end

--- Raises when the backward before left parameters without a gradient.
function Reducer:check_complete()
  local missing = {}
  for i = 1, self.n do
    if not self.arrived[i] then missing[#missing + 1] = i end
  end
  self.incomplete = false
  self:recover()
  if self.counter then self.counter:reset() end
  raise("%s: the previous backward was not reduced, because it gave no gradient to %d of %d parameters: %s; use them in the"
    .. " loss on every rank, freeze them, or wrap the model with find_unused_parameters = true", WHO, #missing, self.n,
    self:named(missing))
end

--- Before a forward whose backward is to average gradients (sync) or only to accumulate them.
---@param sync boolean
---@param joined? boolean other ranks may have run out of inputs: buckets stay as they are
function Reducer:prepare(sync, joined)
  if self.detached then
    raise("%s: the model was wrapped again, or belongs to another wrapped model; use only the newer wrapper", WHO)
  end
  if self.running then
    if pcall(accel.queue_callback, nothing) then return end -- a forward inside a backward
    self:recover()
  end
  if self.void then return end
  if self.incomplete then self:check_complete() end
  self.expects, self.reduced, self.unreduced = sync, false, self.unreduced or not sync
  local begins = sync
  if self.counter then
    self:begin_micro_batch(sync)
    begins = self.counter.n == 0 -- sums of earlier micro-batches lie as the buckets do
  end
  if begins and self.ordered and not self.rebuilt and not joined then self:rebuild() end
  if sync then self:expect() end
end

--- The buckets begin to wait for their gradients.
function Reducer:expect()
  self.next, self.order = 1, nil
  for i = 1, self.n do
    self.arrived[i], self.fires[i] = false, 0
  end
  for _, b in ipairs(self.buckets) do b.pending, b.future = #b.list, nil end
  if not self.expected then return end
  for i = 1, self.n do -- learnt: these get no gradient, and are none to wait for
    if self.expected[i] == 0 then
      self.arrived[i] = true
      self.bucket_of[i].pending = self.bucket_of[i].pending - 1
    end
  end
end

--- A parameter's gradient is whole, for this backward, and accumulated.
function Reducer:on_grad(i)
  if self.void then return end
  if not self.expects then
    if self.reduced then
      raise("%s: '%s' got a gradient from a second backward since the last forward of the wrapped model, which ranks"
        .. " would not average; add the losses and call backward once, or run the first forward and backward inside"
        .. " no_sync()", WHO, self.names[i])
    end
    if not self.counter then return end
  end
  if not self.running then
    self.queue()
    self.running = true
  end
  if not self.expects then return end
  local fires = self.fires[i] + 1
  self.fires[i] = fires
  if fires == 1 and not self.rebuilt then
    self.order = self.order or {}
    self.order[#self.order + 1] = i
  end
  if self.o.static then
    if not self.expected then return end -- the first time everything is only counted
    if fires < self.expected[i] then return end
  end
  if self.arrived[i] then
    raise("%s: '%s' got a %s", WHO, self.names[i], self.o.static and ADDED or SECOND)
  end
  self:arrive(i)
end

--- Moves ->grad into the bucket if it is not there yet: one that was assigned, or that keeps its own memory.
function Reducer:collect(i)
  local p, view = self.params[i], self.views[i]
  local g = p.grad
  if self.counter and not self.came[i] then g = nil end
  if g == view then return end
  local _ <close> = accel.no_grad()
  if g == nil then
    view:zero_()
  else
    view:copy_(g)
    if self.o.as_view then p.grad = view end
  end
end

function Reducer:arrive(i)
  self.arrived[i] = true
  self:collect(i)
  local b = self.bucket_of[i]
  b.pending = b.pending - 1
  if b.pending == 0 then self:launch_ready() end
end

--- Starts every bucket that is complete and has none before it that is not.
function Reducer:launch_ready()
  while self.next <= #self.buckets and self.buckets[self.next].pending == 0 do
    local b = self.buckets[self.next]
    self.next = self.next + 1
    self:launch(b)
  end
end

--- The communication hook's result for a bucket, as a future.
function Reducer:run_hook(bucket)
  local result = self.hook(self.hook_state, bucket)
  if class.isinstance(result, Future) then return result end
  if result == nil or tensors.is_tensor(result) then return Future(nil, result) end
  if type(result) ~= "userdata" or not result.wait then
    raise("%s: a communication hook returns a tensor, a future, a work of a collective, or nothing; this one"
      .. " returned %s", WHO, check.shown(result))
  end
  return Future(result, bucket:buffer())
end

function Reducer:launch(b)
  local _ <close> = accel.no_grad()
  if self.expected then
    for _, i in ipairs(b.list) do
      if self.expected[i] == 0 then self:collect(i) end
    end
  end
  local sum, before = b.flat, nil
  if self.counter then sum, before = self.counter:finish(b.kind, b.offset, b.flat, self.exchange ~= nil) end
  if self.hook then
    b.future = self:run_hook(GradBucket(b))
  elseif self.exchange then
    b.future = self.exchange:all_reduce(sum, before)
  elseif self.size > 1 then
    local op = (self.counter or self.divisor) and "sum" or "mean"
    b.future = Future(dist.all_reduce(sum, { op = op, group = self.o.group, async_op = true }), sum)
  elseif sum ~= b.flat then
    b.future = Future(nil, sum)
  end
end

--- The end of the outermost backward.
function Reducer:finish()
  self.running = false
  local _ <close> = accel.no_grad()
  if not self.expects then
    if self.counter then self:end_micro_batch() end
    return
  end
  if self.o.static and not self.expected then
    for i = 1, self.n do
      if self.fires[i] > 0 then self:arrive(i) end
    end
  end
  local absent = {}
  if self.dynamic or (self.o.static and not self.expected) then
    for i = 1, self.n do
      if not self.arrived[i] then
        absent[#absent + 1], self.arrived[i] = i, true
        self:collect(i)
        self.bucket_of[i].pending = self.bucket_of[i].pending - 1
      end
    end
    self:launch_ready()
  elseif self.expected then -- learnt before
    for i = 1, self.n do
      if self.expected[i] == 0 then absent[#absent + 1] = i end
    end
  end
  if self.next <= #self.buckets then
    self.incomplete = true -- another backward may bring the rest. The next forward checks
    return
  end
  self:complete(absent)
end

--- The used map, under way: 1 for every parameter that has a gradient on this rank.
function Reducer:start_used()
  if not self:tracks_use() then return nil end
  local has = {}
  for i, p in ipairs(self.params) do
    local is = p.grad ~= nil
    if self.counter then is = self.touched[i] or false end
    has[i] = is and 1 or 0
  end
  self.used:copy_(accel.tensor(has, { dtype = "i32", device = "cpu" }))
  if self.size == 1 then return nil end
  return dist.all_reduce(self.used, { op = "max", group = self.o.group, async_op = true })
end

--- The exchange is over.
function Reducer:learn_use() self.anywhere, self.shared = self.used:tolist(), true end

--- Every bucket has started: waits for them all and distributes the results.
---@param absent integer[] parameters without a local gradient
function Reducer:complete(absent)
  self.incomplete = false
  local scale
  if self.counter then
    scale = self:world_scale()
  elseif self.divisor and self.size > 1 then
    scale = (self.hook and self.size or 1) / self.divisor -- hooks average over all ranks
  end
  local used = self:start_used()
  self:wait(scale)
  if used then used:wait() end
  if self:tracks_use() then self:learn_use() end
  for _, i in ipairs(absent) do -- nil if no rank has a gradient
    if self.counter then self.params[i].grad = nil end
    if self.anywhere and self.anywhere[i] > 0 and self.params[i].grad == nil then
      self.params[i].grad = self.o.as_view and self.views[i] or self.views[i]:clone()
    end
  end
  if not self.o.as_view then
    for i, p in ipairs(self.params) do
      if p.grad ~= nil then p.grad:copy_(self.views[i]) end
    end
  end
  if self.counter then self.counter:reset() end
  if self.statistics then
    self.statistics:collect()
    if not self.transactional then self.statistics:apply() end
  end
  if self.o.static and not self.expected then self.expected = { table.unpack(self.fires) } end
  self.expects, self.reduced, self.unreduced = false, true, false
  self.ordered = true
end

--- Waits for all buckets. Futures of several steps advance in turn.
function Reducer:wait(scale)
  local left, wide = {}, self.counter and self.counter.wide or {}
  for _, b in ipairs(self.buckets) do
    if b.future then left[#left + 1] = b end
  end
  while #left > 0 do
    local still = {}
    for _, b in ipairs(left) do
      if b.future:advance() then
        local value = b.future.value
        if value ~= nil and value ~= b.flat then
          if wide[b.kind] then value:mul_(scale) end -- before it is rounded
          b.flat:copy_(value)
        end
        if self.hook then self:clear_gaps(b) end
      else
        still[#still + 1] = b
      end
    end
    left = still
  end
  for _, b in ipairs(self.buckets) do b.future = nil end
  if scale then
    for kind, t in accel.pairs(self.flats) do
      if not wide[kind] then t:mul_(scale) end
    end
  end
end

-- Ranks that have run out of inputs ---------------------------------------------------------------

--- Takes part in one update of the other ranks with zeros.
---@param used boolean whether they exchange which parameters are used
function Reducer:shadow(used)
  local _ <close> = accel.no_grad()
  for _, t in next, self.flats do t:zero_() end
  for _, p in ipairs(self.params) do p.grad = nil end
  for _, b in ipairs(self.buckets) do self:launch(b) end
  local work
  if used then
    self.used:zero_()
    work = dist.all_reduce(self.used, { op = "max", group = self.o.group, async_op = true })
  end
  self:wait(nil)
  self.ordered = true
  if work then
    work:wait()
    self:learn_use()
  end
  for _, t in next, self.flats do t:zero_() end
end

return Reducer
