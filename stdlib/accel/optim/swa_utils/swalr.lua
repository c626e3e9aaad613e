--- swa_utils.SWALR: to the learning rate of weight averaging.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local per_group = require "accel.optim.lr_scheduler.per_group"
local recording = require "accel.util.recording"

--- SWALR(optimizer, swa_lr, anneal_epochs = 10, anneal_strategy = "cos"): from the rate that the optimizer has to swa_lr (one, or one per group)
--- in anneal_epochs steps, along half a cosine or a line ("linear"), then constant. When averaging begins, step it instead of the other schedule.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 1 }) local s = accel.optim.swa_utils.SWALR(o, 0.5, { anneal_epochs = 1 })
---   o:step() s:step() return o.param_groups[1].lr --> 0.5
---@class accel.optim.swa_utils.SWALR : accel.optim.LRScheduler
local SWALR = LRScheduler:extend("accel.optim.swa_utils.SWALR")

local parse = arguments("SWALR", { "swa_lr", list = true }, { "anneal_epochs", 10 }, { "anneal_strategy", "cos" }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any swa_lr, anneal_epochs, anneal_strategy, last_epoch, or a table of them
function SWALR:init(optimizer, ...)
  local o = parse(...)
  check.count("SWALR", "anneal_epochs", o.anneal_epochs)
  check.word("SWALR", "anneal_strategy", o.anneal_strategy, { "cos", "linear" })
  self:_attach(optimizer)
  self.options, self.swa_lr = o, per_group("SWALR", "swa_lr", o.swa_lr, #optimizer.param_groups)
  for i in ipairs(optimizer.param_groups) do check.number("SWALR", "swa_lr", self.swa_lr(i)) end
  LRScheduler.init(self, optimizer, o.last_epoch)
end

--- The share of swa_lr after `step` steps.
local function share(self, step)
  local t = math.max(0, math.min(1, step / math.max(1, self.options.anneal_epochs)))
  return self.options.anneal_strategy == "linear" and t or (1 - math.cos(math.pi * t)) / 2
end

--- From the rate so far, of which the last step's share of swa_lr is taken out: other schedules may have changed it.
---@param step integer
---@param lr number
---@param group integer
---@return number
function SWALR:chain(step, lr, _, group)
  local to = self.swa_lr(group)
  if self.options.anneal_epochs == 0 then step = math.max(1, step) end
  local before, now = share(self, step - 1), share(self, step)
  local first = before == 1 and to or (lr - before * to) / (1 - before)
  return to * now + first * (1 - now)
end

function SWALR:rate(step, base, group)
  local to, now = self.swa_lr(group), share(self, self.options.anneal_epochs == 0 and math.max(1, step) or step)
  return to * now + base * (1 - now)
end

function SWALR:_apply()
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    self.base_lrs[i] = self.base_lrs[i] or group.initial_lr or group.lr
    group.initial_lr = group.initial_lr or group.lr
    group.lr = self:chain(self.last_epoch, group.lr, self.base_lrs[i], i) + 0.0
    self._last_lr[i] = group.lr
  end
end

function SWALR:step()
  recording.note "a scheduler steps (call it after the function)"
  self.last_epoch = self.last_epoch + 1
  self:_apply()
end

--- Continues from a saved state. The rates are those of the optimizer's own state.
---@param state table
function SWALR:load_state_dict(state)
  local rates = {}
  for i, group in ipairs(self.optimizer.param_groups) do rates[i] = group.lr end
  LRScheduler.load_state_dict(self, state)
  for i, group in ipairs(self.optimizer.param_groups) do group.lr, self._last_lr[i] = rates[i], rates[i] end
end

return SWALR
