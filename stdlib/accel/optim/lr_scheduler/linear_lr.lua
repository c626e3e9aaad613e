--- LinearLR{start_factor = 1/3, end_factor = 1, total_iters = 5}: the factor goes from start to end in
--- total_iters steps and stays there.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.optim.LinearLR : accel.optim.LRScheduler
local LinearLR = LRScheduler:extend("accel.optim.LinearLR")

---@param optimizer accel.optim.Optimizer
---@param opts? {start_factor: number?, end_factor: number?, total_iters: integer?, last_epoch: integer?}
function LinearLR:init(optimizer, opts)
  local o = options("LinearLR", opts, {
    start_factor = 1 / 3, end_factor = 1.0, total_iters = 5, last_epoch = -1,
  })
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

return LinearLR
