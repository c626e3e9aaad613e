--- SequentialLR: one schedule after another.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- SequentialLR(optimizer, {first, second, ...}, {m1, ...}): the first schedule up to step m1, from there the
--- second, which counts from zero, and so on.
--- example: local S, o = accel.optim.lr_scheduler, accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
---   local half, triple = S.LambdaLR(o, function() return 0.5 end), S.LambdaLR(o, function() return 3 end)
---   local s = S.SequentialLR(o, { half, triple }, { 1 })
---   o:step() s:step() return o.param_groups[1].lr --> 3
---@class accel.optim.SequentialLR : accel.optim.LRScheduler
local SequentialLR = LRScheduler:extend("accel.optim.SequentialLR")

local parse = arguments("SequentialLR", { "schedulers", list = true }, { "milestones", list = true }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any schedulers, milestones (one less than schedulers, rising) and last_epoch, or a table of them
function SequentialLR:init(optimizer, ...)
  local o = parse(...)
  local schedulers, milestones = o.schedulers, o.milestones
  if type(schedulers) ~= "table" or type(milestones) ~= "table" then
    raise("SequentialLR: expected a list of schedules and a list of milestones, got %s and %s",
      check.shown(schedulers), check.shown(milestones))
  end
  if #milestones ~= #schedulers - 1 then
    raise("SequentialLR: %d schedules need %d milestones, got %d", #schedulers, #schedulers - 1, #milestones)
  end
  for i, s in ipairs(schedulers) do
    if s.optimizer ~= optimizer then raise("SequentialLR: schedule %d belongs to another optimizer", i) end
    if s.metric_driven then raise("SequentialLR: schedule %d follows a metric, not the step", i) end
    if i > 1 and milestones[i] and milestones[i] <= milestones[i - 1] then
      raise "SequentialLR: milestones must rise"
    end
  end
  self.schedulers, self.milestones = schedulers, milestones
  LRScheduler.init(self, optimizer, o.last_epoch)
end

--- The schedule of a step, and the step as it counts.
local function at(self, step)
  local now, start = 1, 0
  for i, milestone in ipairs(self.milestones) do
    if step >= milestone then now, start = i + 1, milestone end
  end
  return self.schedulers[now], step - start
end

function SequentialLR:rate(step, base, group)
  local schedule, own = at(self, step)
  return schedule:rate(own, base, group)
end

function SequentialLR:momentum(step, group)
  local schedule, own = at(self, step)
  return schedule:momentum(own, group)
end

--- Each part counts from its milestone, and -1 means that it has not begun.
function SequentialLR:_state_at(step)
  local state, milestones = LRScheduler._state_at(self, step), self.milestones
  state._milestones, state._schedulers = table.move(milestones, 1, #milestones, 1, {}), {}
  for k, schedule in ipairs(self.schedulers) do
    local first, last = milestones[k - 1] or 0, milestones[k] and milestones[k] - 1 or step
    state._schedulers[k] = schedule:_state_at(step < first and -1 or math.min(step, last) - first)
  end
  return state
end

return SequentialLR
