--- The state of one update: the backwards of an Accelerator from the first after an optimizer's step to the steps that
--- use up their gradients. Here gradients get their last factor, exactly once, from the first caller (clipping or the
--- step): divided by the loss scale, and by the total weight if backwards had one. Used by training.lua and
--- optimizer.lua.
---
--- Divisions come last: a loss with a weight enters as a sum, ranks and micro-batches add up, and one pass per
--- optimizer multiplies by ranks / (total weight * loss scale). The factor ranks is needed because reduced gradients
--- are a mean.
---
--- Losses without a weight whose labels are counted (loss_weights.lua) get weights by micro-step in an update with several: gradients are
--- left divided by the labels of the first one, and complete ones are multiplied by that number and divided by the sum of all.
local accel = require "accel"
local core = require "accel.optim.core"
local deferred = require "accel.nn.deferred"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

---@class accel.accelerator.Update
---@field closed boolean an optimizer stepped: the next backward begins another update
---@field consumed boolean? its backward has stepped and dropped gradients (low_memory.lua)
---@field no_syncs integer blocks of no_sync that are open, if memory is "low"
---@field options table<string, any>[]? of the groups of the optimizer that steps in backward, at that time
---@field weighted boolean? whether its backwards have weights. nil before the first
local Update = class("accel.accelerator.Update")

---@param prepared accel.accelerator.Prepared
---@param scaler accel.amp.GradScaler? with fp16
---@param axis accel.parallel.Axis? ranks that average gradients, if not all
function Update:init(prepared, scaler, axis)
  self.prepared, self._scaler, self.axis = prepared, scaler, axis
  self.closed, self.weighted, self.n, self.no_syncs = true, nil, 0, 0
  self.sums = {} -- sums[i]: weights of the first i backwards, on this rank
  self.totals = {} -- over all ranks, by the backward after which they begin
  self.stepped, self.weighed, self.from = {}, {}, {} -- by optimizer
  self.owners = {} -- optimizer -> its parameters by reducer
end

--- The loss scaler, or nil.
function Update:scaler()
  local scaler = self._scaler
  return scaler and scaler.enabled and scaler or nil
end

local function clear(t)
  for key in next, t do t[key] = nil end
end

-- Backwards --------------------------------------------------------------------------------------

--- Gradients that were left by optimizers without a step, in the old scale, come into the new one.
local function rescale(self, scaler)
  if not scaler._due then return end
  local left = {}
  for _, optimizer in ipairs(self.prepared.optimizers) do
    if not self.stepped[optimizer] and scaler:_is_scaled(optimizer) then left[#left + 1] = optimizer end
  end
  if #left == 0 then -- nobody waits for the device
    scaler:_current()
    return
  end
  local before = scaler._scale:item()
  local ratio = scaler:_current():item() / before
  if ratio == 1 then return end
  for _, optimizer in ipairs(left) do
    for _, list in ipairs(self:lists(optimizer, function() return ratio end)) do
      local _ <close> = accel.no_grad()
      for _, grad in ipairs(list.grads) do grad:mul_(ratio) end
    end
  end
end

--- Before a backward. weighted: whether it comes with a weight.
---@param weighted boolean
---@param state? accel.accelerator.GradientState
---@param count? accel.Tensor labels of its loss
function Update:begin(weighted, state, count)
  if self.closed then
    self.joined = count ~= nil and not weighted and state.num_steps > 1
    if self.joined then self:join(state) end
    local scaler = self:scaler()
    if scaler then rescale(self, scaler) end
    self.closed, self.weighted, self.n = false, weighted, 0
    clear(self.stepped)
    clear(self.weighed)
    clear(self.from)
  elseif self.weighted ~= weighted then
    raise "backward: this update has backwards with and without weight; give all of them a weight, or none"
  end
end

-- Micro-steps of losses that are means over labels -------------------------------------------------

--- Begins an update whose micro-steps have weights. micro: the current one. total: the sum so far. factor: a further factor of
--- present gradients.
function Update:join(state)
  self.state, self.steps, self.total, self.first, self.micro, self.factor = state, 0, 0, nil, nil, 1
  -- a script that accumulates by itself has a micro-step with every backward
  self.by_hand = state.micro_steps == self.last_micro_step
end

--- The weight of the current micro-step: the number of labels of its first loss with a known count, divided by the first micro-step's. A
--- micro-step without one gets the mean of the earlier ones.
---@param count? accel.Tensor
---@return number|accel.Tensor
function Update:micro_step(count)
  local id = self.by_hand and self.n or self.state.micro_steps
  local micro = self.micro
  if not micro or micro.id ~= id then
    if count then
      self.first = self.first or count:clamp(1)
      micro = { id = id, weight = count / self.first }
    else
      micro = { id = id, weight = self.steps > 0 and self.total / self.steps or 1 }
    end
    self.micro, self.steps, self.total = micro, self.steps + 1, micro.weight + self.total
  end
  self.last_micro_step = self.state.micro_steps
  return micro.weight * self.factor
end

--- After a backward that ends an update: its gradients become the gradients of the mean over all labels. If it has fewer micro-steps
--- than planned, at the end of a data set, they are scaled down like other losses' gradients.
function Update:settle()
  local total = self.total
  if accel.is_tensor(total) then
    if total.device:find "^meta" then return end
    total = total:item()
  end
  if total == 0 then return end
  local wanted = self.steps / self.state.num_steps / total
  local ratio = wanted / self.factor
  if ratio == 1 then return end
  self.factor = wanted
  local params, seen, owners = {}, {}, package.loaded["accel.shard.owners"]
  local function add(list)
    for _, p in ipairs(list) do
      if not seen[p] then params[#params + 1], seen[p] = p, true end
    end
  end
  for _, model in ipairs(self.prepared.models) do add(owners and owners.pieces(model:parameters()) or model:parameters()) end
  for _, optimizer in ipairs(self.prepared.optimizers) do
    for _, group in ipairs(optimizer.param_groups) do add(group.params) end
  end
  local _ <close> = accel.no_grad()
  for _, grad in ipairs((core.gradients(params))) do
    if grad then grad:mul_(ratio) end
  end
end

--- After a backward.
---@param weight number?
function Update:add(weight)
  self.n = self.n + 1
  if weight then
    self.sums[self.n] = (self.n > 1 and self.sums[self.n - 1] or 0) + weight
    clear(self.totals)
  end
end

--- Parameters whose gradients have their last factor already, as a set, or nil.
function Update:finished_parameters()
  local scaler, set = self:scaler(), nil
  if not scaler and not self.weighted then return nil end
  for _, optimizer in ipairs(self.prepared.optimizers) do
    if not self.stepped[optimizer] and (self.weighed[optimizer] or scaler and not scaler:_is_scaled(optimizer)) then
      set = set or {}
      for _, group in ipairs(optimizer.param_groups) do
        for _, p in ipairs(group.params) do set[p] = true end
      end
    end
  end
  return set
end

-- The last factor --------------------------------------------------------------------------------

--- The weight of all backwards after the first `from`, over all ranks. A collective.
local function total_weight(self, from)
  local total = self.totals[from]
  if total then return total end
  total = (self.sums[self.n] or 0) - (self.sums[from] or 0)
  local join = self.prepared:active_join()
  if join then
    total = join:sum(total)
  elseif (self.axis and self.axis.size or dist.get_world_size()) > 1 then
    local t = accel.full({}, total, { dtype = "f64", device = "cpu" })
    dist.all_reduce(t, { group = self.axis and self.axis.group })
    total = t:item()
  end
  self.totals[from] = total
  return total
end

--- The number of shares in a gradient's mean: ranks, and micro-batches if the reducer counts them.
local function shares(self, reducer)
  local size = self.axis and self.axis.size or dist.get_world_size()
  if not reducer then return size end
  if reducer.counter then return (reducer.micro_batches or 1) * reducer.size end
  return reducer.divisor or size
end

--- Whether a model has another reducer than it had, or one that has other parameters now.
local function follows(known, models)
  for i, model in ipairs(models) do
    local reducer = rawget(model, "reducer") or false
    if known.reducers[i] ~= reducer or reducer and reducer.stepped ~= known.stepped[i] then return true end
  end
  return false
end

--- Which reducer averages which of the optimizer's parameters.
local function owned(self, optimizer)
  local models, n = self.prepared.models, 0
  for _, group in ipairs(optimizer.param_groups) do n = n + #group.params end
  local known = self.owners[optimizer]
  if known and known.n == n and known.models == models and known.n_models == #models and not follows(known, models) then return known end
  local reducer_of, reducers, stepped = {}, {}, {}
  for i, model in ipairs(models) do
    local reducer = rawget(model, "reducer")
    for _, p in ipairs(reducer and (reducer.stepped or reducer.params) or {}) do reducer_of[p] = reducer end
    reducers[i], stepped[i] = reducer or false, reducer and reducer.stepped
  end
  known = { n = n, models = models, n_models = #models, reducers = reducers, stepped = stepped }
  local lists = {}
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      local key = reducer_of[p] or false
      local list = lists[key]
      if not list then
        list = { reducer = reducer_of[p], params = {} }
        lists[key], known[#known + 1] = list, list
      end
      list.params[#list.params + 1] = p
    end
  end
  self.owners[optimizer] = known
  return known
end

--- The optimizer's gradients, in lists with a factor each.
---@param optimizer accel.accelerator.AcceleratedOptimizer
---@param factor fun(reducer: accel.dist.Reducer?): number
function Update:lists(optimizer, factor)
  local lists = {}
  for i, list in ipairs(owned(self, optimizer)) do
    local grads = {}
    for _, grad in ipairs((core.gradients(list.params))) do grads[#grads + 1] = grad or nil end
    lists[i] = { grads = grads, factor = factor(list.reducer), reducer = list.reducer }
  end
  return lists
end

local function unchanged() return 1 end

--- One scale serves all ranks. If gradients were not averaged, a rank can overflow alone, so the ranks inform each
--- other. A collective, under a condition that is the same on all ranks.
local function agree(self, scaler, optimizer, lists)
  if dist.get_world_size() == 1 then return end
  local differ = optimizer._sharding ~= nil or self.axis ~= nil -- even if this rank has no part at all
  for _, list in ipairs(lists) do differ = differ or not list.reducer or not list.reducer.reduced end
  if not differ then return end
  local join = self.prepared:active_join()
  return scaler:_agree(optimizer, function(found)
    if join then return found:fill_(join:sum(found:item())) end
    dist.all_reduce(found, "max")
  end)
end

--- Gives the gradients of an optimizer their last factor, unless they have it.
---@param optimizer accel.accelerator.AcceleratedOptimizer
function Update:finish(optimizer)
  local scaler = self:scaler()
  local unscale = scaler ~= nil and scaler:_is_scaled(optimizer)
  local weigh = self.weighted and not self.weighed[optimizer]
  if not unscale and not weigh then return end
  local factor = unchanged
  if weigh then
    self.weighed[optimizer] = true
    local total = total_weight(self, self.from[optimizer] or 0)
    factor = function(reducer) return total > 0 and shares(self, reducer) / total or 0 end
  end
  local lists = self:lists(optimizer, factor)
  if scaler then
    scaler:_apply(optimizer, lists, unscale)
    return agree(self, scaler, optimizer, lists)
  end
  local _ <close> = accel.no_grad()
  for _, list in ipairs(lists) do
    if #list.grads > 0 then
      local at = list.grads[1].device
      deferred.each(list.grads, function(grads)
        accel.amp_foreach_unscale_(grads, accel.zeros({}, { device = at }),
          accel.full({}, list.factor, { dtype = "f64", device = at }))
      end)
      core.spend(list.grads)
    end
  end
end

-- Steps ------------------------------------------------------------------------------------------

--- An optimizer has stepped, or skipped.
function Update:step(optimizer)
  self.closed, self.consumed = true, nil
  self.stepped[optimizer] = true
  local scaler = self:scaler()
  if scaler then scaler:_defer_update() end
end

--- The optimizer's gradients were dropped, so earlier backwards no longer count for them. again: the update begins again, and an overflow in
--- them never was.
---@param optimizer accel.accelerator.AcceleratedOptimizer
---@param again? boolean
function Update:drop(optimizer, again)
  local stepped = self.stepped[optimizer]
  if stepped and self.closed then return end
  local scaler = self:scaler()
  if scaler and not stepped then scaler:_forget(optimizer, again) end
  if self.closed then return end
  self.from[optimizer], self.weighed[optimizer] = self.n, nil
  for _, other in ipairs(self.prepared.optimizers) do
    if self.from[other] ~= self.n then return end
  end
  self.closed = true
end

--- All gradients were dropped: the next backward begins an update.
---@param again? boolean the same one
function Update:discard(again)
  for _, optimizer in ipairs(self.prepared.optimizers) do self:drop(optimizer, again) end
  for _, model in ipairs(self.prepared.models) do
    local reducer = rawget(model, "reducer")
    if reducer and reducer.counter then reducer.counter:reset() end
  end
  self.closed, self.weighted, self.consumed = true, nil, nil
  clear(self.owners)
end

--- A weight as a number: how many tokens or samples a loss is the sum of.
---@param weight number|accel.Tensor
---@return number
function Update.weight(weight)
  if tensors.is_tensor(weight) then
    if weight:numel() ~= 1 then
      raise("backward: weight must be a number or have one element, got shape %s", tensors.shape_string(weight))
    end
    weight = weight:item()
    if type(weight) == "boolean" then weight = weight and 1 or 0 end
  end
  check.number("backward", "weight", weight, 0)
  if weight == math.huge then raise "backward: weight must be finite" end
  return weight
end

return Update
