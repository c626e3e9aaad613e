--- LRScheduler: the base of learning-rate schedules. A schedule is a pure function of the number of steps taken and of
--- each group's initial rate (`rate(step, base, group)`), so that a resumed run has the rates of an uninterrupted one.
--- The numbers equal PyTorch's schedules of the same names. Call step() after optimizer:step(). Call step() after
--- optimizer:step(). A state holds the position of a schedule, not its kind: options come from its constructor.
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"

--- example: local Half = accel.optim.lr_scheduler.LRScheduler:extend("Half")
---   function Half:rate(step, base) return base / 2 ^ step end
---   local o = accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
---   local s = Half(o) o:step() s:step() return o.param_groups[1].lr --> 0.5
---@class accel.optim.LRScheduler
---@field last_epoch integer steps taken
---@field base_lrs number[]
local LRScheduler = class("accel.optim.LRScheduler")

---@param optimizer accel.optim.Optimizer
---@param last_epoch? integer the last completed epoch (or step), as in PyTorch. -1 (default) for a new run. Like PyTorch's, the schedule
---  takes a step as it is made, so that it begins at last_epoch + 1.
function LRScheduler:init(optimizer, last_epoch)
  self:_attach(optimizer)
  self.base_lrs = {}
  local done = math.type(last_epoch or -1) and math.tointeger(last_epoch or -1)
  if not done or done < -1 then
    raise("%s: last_epoch must be an integer of at least -1, got %s", getmetatable(self).__name:match "[^.]*$", check.shown(last_epoch))
  end
  self.last_epoch = done + 1
  self:_apply()
end

function LRScheduler:_attach(optimizer)
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    raise("%s: expected an optimizer, got %s", getmetatable(self).__name, type(optimizer))
  end
  self.optimizer = optimizer
end

--- The learning rate of a group (by position) after `step` steps. Subclasses define this.
---@param step integer
---@param base number the group's initial rate
---@param group integer
---@return number
function LRScheduler:rate(step, base, group) -- luacheck: ignore
  raise("%s does not define rate", getmetatable(self).__name)
end

--- The rate after `step` steps, from the rate so far: what a schedule does to the rate of others (ChainedScheduler). Schedules that
--- do not define it set the rate, as in PyTorch.
---@param step integer
---@param lr number the rate so far, after step - 1 steps and the schedules in front of this one
---@param base number the group's initial rate
---@param group integer
---@return number
function LRScheduler:chain(step, lr, base, group) -- luacheck: ignore lr
  return self:rate(step, base, group)
end

--- The momentum (or first beta) of a group after `step` steps, nil to leave it alone. Schedules that cycle it
--- define this.
---@param step integer steps taken
---@param group integer position of the group
---@return number?
function LRScheduler:momentum(step, group) -- luacheck: ignore
  return nil
end

--- Raises unless every group has a momentum or betas to cycle.
function LRScheduler:_expect_momentum()
  for i, group in ipairs(self.optimizer.param_groups) do
    if group.momentum == nil and group.betas == nil then
      raise("%s: parameter group %d has neither momentum nor betas; set cycle_momentum = false",
        getmetatable(self).__name:match "[^.]*$", i)
    end
  end
end

--- A group's initial rate. One that was added later starts from its own rate.
local function base_of(self, i, group)
  if not self.base_lrs[i] then
    group.initial_lr = group.initial_lr or group.lr
    self.base_lrs[i] = group.initial_lr
  end
  return self.base_lrs[i]
end

function LRScheduler:_apply()
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    group.lr = self:rate(self.last_epoch, base_of(self, i, group), i) + 0.0
    self._last_lr[i] = group.lr
    local momentum = self:momentum(self.last_epoch, i)
    if momentum and group.betas then
      group.betas = { momentum, group.betas[2] }
    elseif momentum then
      group.momentum = momentum
    end
  end
end

--- On to the rates of the next step.
function LRScheduler:step()
  recording.note "a scheduler steps (call it after the function)"
  self.last_epoch = self.last_epoch + 1
  self:_apply()
end

--- The rates set last, one per group.
---@return number[]
function LRScheduler:get_last_lr() return self._last_lr end

--- The rates of the first `steps` steps as a picture for a terminal, on the scale of the largest.
--- example: local s = accel.optim.lr_scheduler.StepLR(accel.optim.SGD(accel.ones(1)), 2) return #s:plot(9) > 0 --> true
---@param steps integer
---@param opts? table as plot.text's: width, height, utf8, xlabel
---@return string
function LRScheduler:plot(steps, opts, ...)
  check.surplus("LRScheduler:plot", ...)
  if self.metric_driven then
    raise("%s follows a metric: its rates are not known ahead", getmetatable(self).__name:match "[^.]*$")
  end
  local series, most = {}, 0
  for i, group in ipairs(self.optimizer.param_groups) do
    local rates = {}
    for step = 0, steps - 1 do rates[step + 1] = self:rate(step, base_of(self, i, group), i) + 0.0 end
    most = math.max(most, table.unpack(rates))
    series[i] = { y = rates, x = {} }
  end
  for i, s in ipairs(series) do
    for step = 1, steps do s.x[step], s.y[step] = step - 1, most > 0 and s.y[step] / most or 0.0 end
    s.name = i == 1 and ("rate / %.4g"):format(most) or ("group %d"):format(i)
  end
  return require "accel.util.plot".text(series, opts)
end

--- The schedule's position, to be saved: the steps taken, and each group's initial rate.
--- example: local s = accel.optim.lr_scheduler.StepLR(accel.optim.SGD(accel.ones(1), { lr = 1 }), 2)
---   return s:state_dict() --> { base_lrs = { 1 }, last_epoch = 0 }
---@return table
function LRScheduler:state_dict() return self:_state_at(self.last_epoch) end

--- The state after `step` steps. Schedules made of others add theirs, as PyTorch does.
---@param step integer
---@return table
function LRScheduler:_state_at(step)
  return { last_epoch = step, base_lrs = table.move(self.base_lrs, 1, #self.base_lrs, 1, {}) }
end

--- Continues from a saved state: sets the rates of that step. The kind of schedule comes from its constructor.
---@param state table
function LRScheduler:load_state_dict(state)
  if type(state) ~= "table" or math.type(state.last_epoch) ~= "integer" or type(state.base_lrs) ~= "table" then
    raise("%s: not the state of a schedule", getmetatable(self).__name)
  end
  self.last_epoch = state.last_epoch
  self.base_lrs = table.move(state.base_lrs, 1, #state.base_lrs, 1, {})
  self:_apply()
end

return LRScheduler
