--- StepLR: a rate that falls in steps.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"

--- StepLR(optimizer, step_size, gamma = 0.1): the rate times gamma after every step_size steps.
--- example: accel.optim.lr_scheduler.StepLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 7):get_last_lr() --> { 2 }
---@class accel.optim.StepLR : accel.optim.LRScheduler
local StepLR = LRScheduler:extend("accel.optim.StepLR")

local parse = arguments("StepLR", { "step_size" }, { "gamma", 0.1 }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any step_size, gamma, last_epoch, or a table of them
function StepLR:init(optimizer, ...)
  local o = parse(...)
  o.step_size = check.positive("StepLR", "step_size", o.step_size)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function StepLR:rate(step, base) return base * self.options.gamma ^ (step // self.options.step_size) end

function StepLR:chain(step, lr)
  return step > 0 and step % self.options.step_size == 0 and lr * self.options.gamma or lr
end

return StepLR
