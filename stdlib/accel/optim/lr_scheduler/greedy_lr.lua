--- GreedyLR: a rate that follows a metric both ways.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local per_group = require "accel.optim.lr_scheduler.per_group"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- GreedyLR(optimizer, {mode = "min", factor = 0.95, patience = 10, ...}): step(metric) after each evaluation, as
--- Transformers' schedule of that name. More than `patience` improvements in a row divide the rates by factor (up to
--- max_lr), and then `warmup` evaluations are ignored. As many failures multiply them by it (down to min_lr), and then
--- `cooldown` are ignored. smooth: use the mean of the last window_size metrics. After reset_start reductions at the
--- least rate everything starts over.
--- example: local o = accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
---   local s = accel.optim.lr_scheduler.GreedyLR(o, { factor = 0.5, patience = 0 })
---   s:step(1) s:step(2) return o.param_groups[1].lr --> 0.5
---@class accel.optim.GreedyLR : accel.optim.LRScheduler
local GreedyLR = LRScheduler:extend("accel.optim.GreedyLR")

local parse = arguments("GreedyLR", { "mode", "min" }, { "factor", 0.95 }, { "patience", 10 }, { "threshold", 1e-6 },
  { "threshold_mode", "abs" }, { "cooldown", 0 }, { "warmup", 0 }, { "min_lr", 1e-3, list = true },
  { "max_lr", 1.0, list = true }, { "eps", 1e-8 }, { "smooth", false }, { "window_size", 50 }, { "reset_start", 500 })

GreedyLR.metric_driven = true

local kept = { "best", "good", "bad", "resting", "reset_left" } -- of a state, in addition to lists

---@param optimizer accel.optim.Optimizer
---@param ... any mode, factor, patience, ..., or a table of them
function GreedyLR:init(optimizer, ...)
  local o = parse(...)
  check.word("GreedyLR", "mode", o.mode, { "min", "max" })
  check.word("GreedyLR", "threshold_mode", o.threshold_mode, { "rel", "abs" })
  if not (o.factor < 1) then raise("GreedyLR: factor must be below 1, got %s", tostring(o.factor)) end
  if o.window_size ~= 50 and not o.smooth then no_effect.once("GreedyLR", "window_size", "without smooth; set smooth = true") end
  self:_attach(optimizer)
  local groups = #optimizer.param_groups
  self.options = o
  self.min_lr = per_group("GreedyLR", "min_lr", o.min_lr, groups)
  self.max_lr = per_group("GreedyLR", "max_lr", o.max_lr, groups)
  self.last_epoch, self.base_lrs = 0, {}
  for i, group in ipairs(optimizer.param_groups) do self.base_lrs[i] = group.lr end
  self:_start()
  self:_note()
end

function GreedyLR:_start()
  self.best, self.good, self.bad, self.resting = nil, 0, 0, 0
  self.reset_left, self.window = self.options.reset_start, {}
end

function GreedyLR:_note()
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do self._last_lr[i] = group.lr end
end

function GreedyLR:_is_better(value)
  local o = self.options
  local sign = o.mode == "min" and -1 or 1
  local best = self.best or -sign * math.huge
  local bar = o.threshold_mode == "rel" and best * (1 + sign * o.threshold) or best + sign * o.threshold
  if o.mode == "min" then return value < bar end
  return value > bar
end

local function smoothed(window, value, size)
  window[#window + 1] = value
  if #window > size then table.remove(window, 1) end
  local sum = 0.0
  for _, v in ipairs(window) do sum = sum + v end
  return sum / #window
end

function GreedyLR:_raise_rates()
  for i, group in ipairs(self.optimizer.param_groups) do
    local higher = math.min(group.lr / self.options.factor, self.max_lr(i))
    if higher - group.lr > self.options.eps then group.lr = higher end
  end
  self.reset_left, self.resting, self.good = self.options.reset_start, self.options.warmup, 0
end

function GreedyLR:_lower_rates()
  local at_least = true
  for i, group in ipairs(self.optimizer.param_groups) do
    local lower = math.max(group.lr * self.options.factor, self.min_lr(i))
    if group.lr - lower > self.options.eps then group.lr = lower end
    at_least = at_least and group.lr <= self.min_lr(i)
  end
  self.resting, self.bad = self.options.cooldown, 0
  if not at_least then return end
  self.reset_left = self.reset_left - 1
  if self.reset_left <= 0 then
    for i, group in ipairs(self.optimizer.param_groups) do group.lr = self.base_lrs[i] or group.lr end
    self:_start()
    self.resting = self.options.cooldown
  end
end

--- Notes a metric and changes the rates if necessary.
---@param metric number|accel.Tensor
function GreedyLR:step(metric)
  local o = self.options
  if tensors.is_tensor(metric) then metric = metric:item() end
  if type(metric) ~= "number" then
    raise("GreedyLR: step takes the metric, a number, got %s", check.shown(metric))
  end
  self.last_epoch = self.last_epoch + 1
  if o.smooth then metric = smoothed(self.window, metric, o.window_size) end
  if self.resting > 0 then
    self.resting, self.good, self.bad = self.resting - 1, 0, 0
  else
    if self:_is_better(metric) then
      self.best, self.good, self.bad = metric, self.good + 1, 0
    else
      self.good, self.bad = 0, self.bad + 1
    end
    if self.good > o.patience then self:_raise_rates() elseif self.bad > o.patience then self:_lower_rates() end
  end
  self:_note()
end

--- The schedule's history and current rates, to be saved.
---@return table
function GreedyLR:state_dict()
  local state = { last_epoch = self.last_epoch }
  for _, key in ipairs(kept) do state[key] = self[key] end
  for _, key in ipairs { "base_lrs", "window" } do state[key] = table.move(self[key], 1, #self[key], 1, {}) end
  state.lrs = table.move(self._last_lr, 1, #self._last_lr, 1, {})
  return state
end

--- Continues from a saved state, with its rates.
---@param state table
function GreedyLR:load_state_dict(state)
  if type(state) ~= "table" or type(state.window) ~= "table" or type(state.lrs) ~= "table" then
    raise "GreedyLR: not the state of this schedule"
  end
  self.last_epoch = state.last_epoch
  for _, key in ipairs(kept) do self[key] = state[key] end
  for _, key in ipairs { "base_lrs", "window" } do self[key] = table.move(state[key], 1, #state[key], 1, {}) end
  for i, group in ipairs(self.optimizer.param_groups) do group.lr = state.lrs[i] or group.lr end
  self:_note()
end

return GreedyLR
