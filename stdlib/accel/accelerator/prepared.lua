--- The objects that an Accelerator has prepared, in the order of preparing: models, optimizers, schedules and loaders,
--- and the prepared form of each. The only owner of these lists: prepare.lua adds to them, everything else reads.
local class = require "accel.util.class"

---@class accel.accelerator.Prepared
---@field models accel.nn.Module[] lists are replaced, not emptied, by clear
---@field optimizers accel.accelerator.AcceleratedOptimizer[]
---@field schedulers accel.accelerator.AcceleratedScheduler[]
---@field dataloaders accel.accelerator.DataLoader[]
---@field given accel.nn.Module[] models of the call of prepare that is running or was the last
local Prepared = class("accel.accelerator.Prepared")

function Prepared:init() self:clear() end

--- Forgets everything.
function Prepared:clear()
  self.models, self.optimizers, self.schedulers, self.dataloaders = {}, {}, {}, {}
  self.given = setmetatable({}, { __mode = "v" })
  self._made = setmetatable({}, { __mode = "k" })
end

--- The prepared models, and those that come to it in the same call.
---@return accel.nn.Module[]
function Prepared:all_models()
  local list = table.move(self.models, 1, #self.models, 1, {})
  for _, model in next, self.given do list[#list + 1] = not self._made[model] and model or nil end
  return list
end

--- The prepared form of `object`, or the object itself if it is one. nil otherwise.
function Prepared:find(object) return self._made[object] end

--- Adds the prepared form of an object to a list of this registry. Returns it.
---@generic T
---@param list table
---@param object any
---@param made T
---@return T
function Prepared:add(list, object, made)
  self._made[object], self._made[made] = made, made
  list[#list + 1] = made
  return made
end

--- Whether an optimizer has parameters of the set.
---@param optimizer table
---@param set table<accel.Tensor, any>
---@return boolean
function Prepared.holds(optimizer, set)
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      if set[p] then return true end
    end
  end
  local sharding = optimizer._sharding -- a rank may have no part of a parameter that is in the set
  for _, p in ipairs(sharding and sharding.params or {}) do
    if set[p] then return true end
  end
  return false
end

--- The prepared optimizers that have parameters of the set.
---@param set table<accel.Tensor, any>
---@return accel.accelerator.AcceleratedOptimizer[]
function Prepared:optimizers_of(set)
  local list = {}
  for _, optimizer in ipairs(self.optimizers) do
    if Prepared.holds(optimizer, set) then list[#list + 1] = optimizer end
  end
  return list
end

--- Whether a model divides gradients by the number of micro-batches itself: deterministic = "world".
---@return boolean
function Prepared:counts_micro_batches()
  local models = self.models
  for i = 1, #models do
    local reducer = rawget(models[i], "reducer")
    if reducer and reducer.counter then return true end
  end
  return false
end

--- The join_uneven_inputs around a model that is under way, nil without one.
---@return accel.dist.Join?
function Prepared:active_join()
  for _, model in ipairs(self.models) do
    local join = rawget(model, "joining")
    if join then return join end
  end
end

return Prepared
