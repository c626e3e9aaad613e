--- ExponentialLR: a rate that falls by a factor in every step.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"

--- ExponentialLR(optimizer, gamma): the rate times gamma in every step.
--- example: accel.optim.lr_scheduler.ExponentialLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 0.9):get_last_lr() --> { 2 }
---@class accel.optim.ExponentialLR : accel.optim.LRScheduler
local ExponentialLR = LRScheduler:extend("accel.optim.ExponentialLR")

local parse = arguments("ExponentialLR", { "gamma" }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any gamma, last_epoch, or a table of them
function ExponentialLR:init(optimizer, ...)
  local o = parse(...)
  check.number("ExponentialLR", "gamma", o.gamma)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function ExponentialLR:rate(step, base) return base * self.options.gamma ^ step end

function ExponentialLR:chain(step, lr) return step > 0 and lr * self.options.gamma or lr end

return ExponentialLR
