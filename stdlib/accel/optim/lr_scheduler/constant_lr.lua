--- ConstantLR: a smaller rate at first.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local raise = require "accel.util.raise"

--- ConstantLR(optimizer, factor = 1/3, total_iters = 5): base rate times factor for the first total_iters steps,
--- then the base rate.
--- example: accel.optim.lr_scheduler.ConstantLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 0.25, 6):get_last_lr() --> { 0.5 }
---@class accel.optim.ConstantLR : accel.optim.LRScheduler
local ConstantLR = LRScheduler:extend("accel.optim.ConstantLR")

local parse = arguments("ConstantLR", { "factor", 1 / 3 }, { "total_iters", 5 }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any factor, total_iters, last_epoch, or a table of them
function ConstantLR:init(optimizer, ...)
  self.options = parse(...)
  local factor = self.options.factor
  if not (factor > 0 and factor <= 1) then raise("ConstantLR: factor must lie in (0, 1], got %s", tostring(factor)) end
  LRScheduler.init(self, optimizer, self.options.last_epoch)
end

function ConstantLR:rate(step, base)
  return step < self.options.total_iters and base * self.options.factor or base
end

function ConstantLR:chain(step, lr)
  local o = self.options
  if step == 0 then return lr * o.factor end
  return step == o.total_iters and lr / o.factor or lr
end

return ConstantLR
