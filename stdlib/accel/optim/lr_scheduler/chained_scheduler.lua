--- ChainedScheduler: several schedules at once.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- ChainedScheduler({first, second, ...}): in each step the schedules change the rate one after the other, as in PyTorch. Those that
--- multiply (StepLR, MultiStepLR, ConstantLR, LinearLR, ExponentialLR, PolynomialLR, MultiplicativeLR, and CosineAnnealingLR above
--- eta_min) combine. All others (LambdaLR, OneCycleLR, CyclicLR, ...) set the rate, so that only schedules after them count.
--- example: local S, o = accel.optim.lr_scheduler, accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
---   local half, fall = S.ConstantLR(o, 1 / 2, 4), S.ExponentialLR(o, 0.9)
---   local s = S.ChainedScheduler { half, fall } o:step() s:step() return o.param_groups[1].lr --> 0.45
---@class accel.optim.ChainedScheduler : accel.optim.LRScheduler
local ChainedScheduler = LRScheduler:extend("accel.optim.ChainedScheduler")

---@param schedulers accel.optim.LRScheduler[]
---@param optimizer? accel.optim.Optimizer theirs
function ChainedScheduler:init(schedulers, optimizer)
  if type(schedulers) ~= "table" or #schedulers == 0 then
    raise("ChainedScheduler: expected a list of schedules, got %s", check.shown(schedulers))
  end
  optimizer = optimizer or schedulers[1].optimizer
  for i, s in ipairs(schedulers) do
    if s.optimizer ~= optimizer then raise("ChainedScheduler: schedule %d belongs to another optimizer", i) end
    if s.metric_driven then raise("ChainedScheduler: schedule %d follows a metric, not the step", i) end
  end
  self.schedulers, self.reached = schedulers, {}
  LRScheduler.init(self, optimizer, schedulers[1].last_epoch - 1)
end

--- The rate follows from all steps before. reached has that of the last one, by group: { step, base, rate }.
---@param step integer
---@param base number
---@param group integer
---@return number
function ChainedScheduler:rate(step, base, group)
  local known = self.reached[group]
  if not known or known[1] > step or known[2] ~= base then known = { -1, base, base } end
  local at, lr = known[1], known[3]
  while at < step do
    at = at + 1
    lr = self:chain(at, lr, base, group)
  end
  self.reached[group] = { at, base, lr }
  return lr
end

function ChainedScheduler:chain(step, lr, base, group)
  for _, s in ipairs(self.schedulers) do lr = s:chain(step, lr, base, group) end
  return lr
end

function ChainedScheduler:momentum(step, group)
  local momentum
  for _, s in ipairs(self.schedulers) do momentum = s:momentum(step, group) or momentum end
  return momentum
end

function ChainedScheduler:_state_at(step)
  local state = LRScheduler._state_at(self, step)
  state._schedulers = {}
  for k, schedule in ipairs(self.schedulers) do state._schedulers[k] = schedule:_state_at(step) end
  return state
end

return ChainedScheduler
