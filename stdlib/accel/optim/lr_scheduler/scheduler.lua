--- LRScheduler: the base of learning-rate schedules. A schedule is a pure function of the number of steps
--- taken and of each group's initial rate (`rate(step, base, group)`), so that a resumed run has the rates
--- of an uninterrupted one; the numbers are those of PyTorch's schedules of the same names. Call step()
--- after optimizer:step().
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.optim.LRScheduler
---@field last_epoch integer steps taken
---@field base_lrs number[]
local LRScheduler = class("accel.optim.LRScheduler")

---@param optimizer accel.optim.Optimizer
---@param last_epoch? integer steps already taken, -1 (default) for a new run
function LRScheduler:init(optimizer, last_epoch)
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    raise("%s: expected an optimizer, got %s", getmetatable(self).__name, type(optimizer))
  end
  self.optimizer = optimizer
  self.base_lrs = {}
  for i, group in ipairs(optimizer.param_groups) do
    group.initial_lr = group.initial_lr or group.lr
    self.base_lrs[i] = group.initial_lr
  end
  self.last_epoch = math.max(last_epoch or -1, 0)
  self:_apply()
end

--- The learning rate of a group (by position) after `step` steps. Subclasses define this.
---@param step integer
---@param base number the group's initial rate
---@param group integer
---@return number
function LRScheduler:rate(step, base, group) -- luacheck: ignore
  raise("%s does not define rate", getmetatable(self).__name)
end

function LRScheduler:_apply()
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    group.lr = self:rate(self.last_epoch, self.base_lrs[i] or group.lr, i) + 0.0
    self._last_lr[i] = group.lr
  end
end

--- On to the rates of the next step.
function LRScheduler:step()
  self.last_epoch = self.last_epoch + 1
  self:_apply()
end

--- The rates set last, one per group.
function LRScheduler:get_last_lr() return self._last_lr end

function LRScheduler:state_dict()
  return { last_epoch = self.last_epoch, base_lrs = table.move(self.base_lrs, 1, #self.base_lrs, 1, {}) }
end

function LRScheduler:load_state_dict(state)
  if math.type(state.last_epoch) ~= "integer" or type(state.base_lrs) ~= "table" then
    raise("%s: not the state of a schedule", getmetatable(self).__name)
  end
  self.last_epoch = state.last_epoch
  self.base_lrs = table.move(state.base_lrs, 1, #state.base_lrs, 1, {})
  self:_apply()
end

return LRScheduler
