--- ChainedScheduler: several schedules at once.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- ChainedScheduler({first, second, ...}): each schedule's rate is the base rate of the next, so that factors
--- multiply.
--- example: local S, o = accel.optim.lr_scheduler, accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
---   local half, third = S.LambdaLR(o, function() return 1 / 2 end), S.LambdaLR(o, function() return 1 / 3 end)
---   local s = S.ChainedScheduler { half, third } o:step() s:step() return o.param_groups[1].lr --> 0.166667
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
  self.schedulers = schedulers
  LRScheduler.init(self, optimizer, schedulers[1].last_epoch - 1)
end

function ChainedScheduler:rate(step, base, group)
  for _, s in ipairs(self.schedulers) do base = s:rate(step, base, group) end
  return base
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
