--- CosineAnnealingWarmRestarts: cosines that start over.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"

--- CosineAnnealingWarmRestarts(optimizer, T_0, T_mult = 1, eta_min = 0): half a cosine from the base rate to eta_min
--- in T_0 steps, then from the top again, each cycle T_mult times as long as the one before. step(epoch) with a
--- fraction of an epoch sets the time directly.
--- example: accel.optim.lr_scheduler.CosineAnnealingWarmRestarts(accel.optim.SGD(accel.ones(1), {lr = 2}), 8):get_last_lr() --> { 2 }
---@class accel.optim.CosineAnnealingWarmRestarts : accel.optim.LRScheduler
local CosineAnnealingWarmRestarts = LRScheduler:extend("accel.optim.CosineAnnealingWarmRestarts")

local parse = arguments("CosineAnnealingWarmRestarts", { "T_0" }, { "T_mult", 1 }, { "eta_min", 0.0 },
  { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any T_0, T_mult, eta_min, last_epoch, or a table of them
function CosineAnnealingWarmRestarts:init(optimizer, ...)
  local what = "CosineAnnealingWarmRestarts"
  local o = parse(...)
  o.T_0, o.T_mult = check.positive(what, "T_0", o.T_0), check.positive(what, "T_mult", o.T_mult)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function CosineAnnealingWarmRestarts:rate(step, base)
  local o = self.options
  local time, length = step, o.T_0
  if o.T_mult == 1 then
    time = time % length
  else
    while time >= length do time, length = time - length, length * o.T_mult end
  end
  return o.eta_min + (base - o.eta_min) * (1 + math.cos(math.pi * time / length)) / 2
end

---@param epoch? number the time to set, which may be between two steps. Default: the next step
function CosineAnnealingWarmRestarts:step(epoch)
  if epoch then
    self.last_epoch = check.number("CosineAnnealingWarmRestarts", "epoch", epoch, 0)
    self:_apply()
    self.last_epoch = math.floor(epoch)
  else
    LRScheduler.step(self)
  end
end

return CosineAnnealingWarmRestarts
