--- ConstantLR{factor = 1/3, total_iters = 5}: base rate times factor for the first total_iters steps, then
--- the base rate.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local options = require "accel.util.options"

---@class accel.optim.ConstantLR : accel.optim.LRScheduler
local ConstantLR = LRScheduler:extend("accel.optim.ConstantLR")

---@param optimizer accel.optim.Optimizer
---@param opts? {factor: number?, total_iters: integer?, last_epoch: integer?}
function ConstantLR:init(optimizer, opts)
  self.options = options("ConstantLR", opts, { factor = 1 / 3, total_iters = 5, last_epoch = -1 })
  LRScheduler.init(self, optimizer, self.options.last_epoch)
end

function ConstantLR:rate(step, base)
  return step < self.options.total_iters and base * self.options.factor or base
end

return ConstantLR
