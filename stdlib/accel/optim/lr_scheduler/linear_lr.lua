--- LinearLR: a rate that rises (or falls) on a line.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- LinearLR(optimizer, start_factor = 1/3, end_factor = 1, total_iters = 5): the factor on the base rate goes from
--- start to end in total_iters steps and stays there.
--- example: accel.optim.lr_scheduler.LinearLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 0.1, 1.0, 10):get_last_lr() --> { 0.2 }
---@class accel.optim.LinearLR : accel.optim.LRScheduler
local LinearLR = LRScheduler:extend("accel.optim.LinearLR")

local parse = arguments("LinearLR", { "start_factor", 1 / 3 }, { "end_factor", 1.0 }, { "total_iters", 5 },
  { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any start_factor, end_factor, total_iters, last_epoch, or a table of them
function LinearLR:init(optimizer, ...)
  local o = parse(...)
  if not (o.start_factor > 0 and o.start_factor <= 1) then
    raise "LinearLR: start_factor must lie in (0, 1]"
  end
  if not (o.end_factor >= 0 and o.end_factor <= 1) then raise "LinearLR: end_factor must lie in [0, 1]" end
  check.positive("LinearLR", "total_iters", o.total_iters)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function LinearLR:rate(step, base)
  local o = self.options
  local done = math.min(o.total_iters, step)
  return base * (o.start_factor + (o.end_factor - o.start_factor) * done / o.total_iters)
end

function LinearLR:chain(step, lr)
  local o = self.options
  if step == 0 then return lr * o.start_factor end
  if step > o.total_iters then return lr end
  local change = o.end_factor - o.start_factor
  return lr * (1 + change / (o.total_iters * o.start_factor + (step - 1) * change))
end

return LinearLR
