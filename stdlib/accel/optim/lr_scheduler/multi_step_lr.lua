--- MultiStepLR: a rate that falls at given steps.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- MultiStepLR(optimizer, milestones, gamma = 0.1): the rate times gamma at each of the milestones. One that is listed
--- twice counts twice.
--- example: accel.optim.lr_scheduler.MultiStepLR(accel.optim.SGD(accel.ones(1), {lr = 2}), {5, 20}):get_last_lr() --> { 2 }
---@class accel.optim.MultiStepLR : accel.optim.LRScheduler
local MultiStepLR = LRScheduler:extend("accel.optim.MultiStepLR")

local parse = arguments("MultiStepLR", { "milestones", list = true }, { "gamma", 0.1 }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any milestones, gamma, last_epoch, or a table of them
function MultiStepLR:init(optimizer, ...)
  local o = parse(...)
  if type(o.milestones) ~= "table" then
    raise("MultiStepLR: milestones must be a list of steps, got %s", check.shown(o.milestones))
  end
  for i, m in ipairs(o.milestones) do check.integer("MultiStepLR", ("milestones[%d]"):format(i), m) end
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function MultiStepLR:rate(step, base)
  local passed = 0
  for _, m in ipairs(self.options.milestones) do passed = step >= m and passed + 1 or passed end
  return base * self.options.gamma ^ passed
end

function MultiStepLR:chain(step, lr)
  for _, m in ipairs(self.options.milestones) do lr = step == m and lr * self.options.gamma or lr end
  return lr
end

return MultiStepLR
