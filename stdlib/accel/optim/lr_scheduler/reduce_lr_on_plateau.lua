--- ReduceLROnPlateau: a rate that falls when a metric stops getting better.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local per_group = require "accel.optim.lr_scheduler.per_group"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- ReduceLROnPlateau(optimizer, {mode = "min", factor = 0.1, patience = 10, ...}): step(metric) after each evaluation.
--- After more than `patience` of them without an improvement by `threshold` ("rel": of the best value, "abs") the rates
--- are multiplied by factor, not below min_lr nor by less than eps. Then `cooldown` evaluations are ignored.
--- example: accel.optim.lr_scheduler.ReduceLROnPlateau(accel.optim.SGD(accel.ones(1), {lr = 2})):get_last_lr() --> { 2 }
---@class accel.optim.ReduceLROnPlateau : accel.optim.LRScheduler
---@field best number? the best metric so far
local ReduceLROnPlateau = LRScheduler:extend("accel.optim.ReduceLROnPlateau")

local parse = arguments("ReduceLROnPlateau", { "mode", "min" }, { "factor", 0.1 }, { "patience", 10 },
  { "threshold", 1e-4 }, { "threshold_mode", "rel" }, { "cooldown", 0 }, { "min_lr", 0, list = true },
  { "eps", 1e-8 })

--- Steps of this schedule take a metric, so that it cannot be part of another.
ReduceLROnPlateau.metric_driven = true

---@param optimizer accel.optim.Optimizer
---@param ... any mode, factor, patience, ..., or a table of them
function ReduceLROnPlateau:init(optimizer, ...)
  local o = parse(...)
  check.word("ReduceLROnPlateau", "mode", o.mode, { "min", "max" })
  check.word("ReduceLROnPlateau", "threshold_mode", o.threshold_mode, { "rel", "abs" })
  if not (o.factor < 1) then raise("ReduceLROnPlateau: factor must be below 1, got %s", tostring(o.factor)) end
  self:_attach(optimizer)
  self.options = o
  self.min_lr = per_group("ReduceLROnPlateau", "min_lr", o.min_lr, #optimizer.param_groups)
  self.last_epoch, self.num_bad_epochs, self.cooldown_counter = 0, 0, 0
  self:_note()
end

function ReduceLROnPlateau:_note()
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do self._last_lr[i] = group.lr end
end

local function is_better(o, value, best)
  local sign = o.mode == "min" and -1 or 1
  best = best or -sign * math.huge
  local bar = o.threshold_mode == "rel" and best * (1 + sign * o.threshold) or best + sign * o.threshold
  if o.mode == "min" then return value < bar end
  return value > bar
end

--- Notes a metric and lowers the rates if necessary.
---@param metric number|accel.Tensor
function ReduceLROnPlateau:step(metric)
  local o = self.options
  if tensors.is_tensor(metric) then metric = metric:item() end
  if type(metric) ~= "number" then
    raise("ReduceLROnPlateau: step takes the metric, a number, got %s", check.shown(metric))
  end
  self.last_epoch = self.last_epoch + 1
  if is_better(o, metric, self.best) then
    self.best, self.num_bad_epochs = metric, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
  end
  if self.num_bad_epochs > o.patience then
    for i, group in ipairs(self.optimizer.param_groups) do
      local lower = math.max(group.lr * o.factor, self.min_lr(i))
      if group.lr - lower > o.eps then group.lr = lower end
    end
    self.cooldown_counter, self.num_bad_epochs = o.cooldown, 0
  end
  self:_note()
end

--- The best metric so far, the counts and the rates, to be saved.
---@return table
function ReduceLROnPlateau:state_dict()
  return {
    last_epoch = self.last_epoch, best = self.best, num_bad_epochs = self.num_bad_epochs,
    cooldown_counter = self.cooldown_counter, lrs = table.move(self._last_lr, 1, #self._last_lr, 1, {}),
  }
end

--- Continues from a saved state, with its rates.
---@param state table
function ReduceLROnPlateau:load_state_dict(state)
  if type(state) ~= "table" or type(state.num_bad_epochs) ~= "number" or type(state.lrs) ~= "table" then
    raise "ReduceLROnPlateau: not the state of this schedule"
  end
  self.last_epoch, self.best = state.last_epoch, state.best
  self.num_bad_epochs, self.cooldown_counter = state.num_bad_epochs, state.cooldown_counter
  for i, group in ipairs(self.optimizer.param_groups) do group.lr = state.lrs[i] or group.lr end
  self:_note()
end

return ReduceLROnPlateau
