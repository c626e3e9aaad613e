--- PolynomialLR: a rate that falls to zero along a power.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"

--- PolynomialLR(optimizer, total_iters = 5, power = 1): the base rate times (1 - step / total_iters)^power, zero
--- from total_iters on.
--- example: accel.optim.lr_scheduler.PolynomialLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 25):get_last_lr() --> { 2 }
---@class accel.optim.PolynomialLR : accel.optim.LRScheduler
local PolynomialLR = LRScheduler:extend("accel.optim.PolynomialLR")

local parse = arguments("PolynomialLR", { "total_iters", 5 }, { "power", 1.0 }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any total_iters, power, last_epoch, or a table of them
function PolynomialLR:init(optimizer, ...)
  local o = parse(...)
  check.positive("PolynomialLR", "total_iters", o.total_iters)
  check.number("PolynomialLR", "power", o.power, 0)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function PolynomialLR:rate(step, base)
  local o = self.options
  return base * (1 - math.min(step, o.total_iters) / o.total_iters) ^ o.power
end

function PolynomialLR:chain(step, lr)
  local o = self.options
  if step == 0 or step > o.total_iters then return lr end
  return lr * ((1 - step / o.total_iters) / (1 - (step - 1) / o.total_iters)) ^ o.power
end

return PolynomialLR
