--- CosineAnnealingLR: a rate that falls on half a cosine.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local raise = require "accel.util.raise"

--- CosineAnnealingLR(optimizer, T_max, eta_min = 0): half a cosine from the base rate to eta_min in T_max steps. It
--- rises again after that, as in PyTorch.
--- example: accel.optim.lr_scheduler.CosineAnnealingLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 30):get_last_lr() --> { 2 }
---@class accel.optim.CosineAnnealingLR : accel.optim.LRScheduler
local CosineAnnealingLR = LRScheduler:extend("accel.optim.CosineAnnealingLR")

local parse = arguments("CosineAnnealingLR", { "T_max" }, { "eta_min", 0.0 }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any T_max, eta_min, last_epoch, or a table of them
function CosineAnnealingLR:init(optimizer, ...)
  local o = parse(...)
  if type(o.T_max) ~= "number" or o.T_max <= 0 then
    raise "CosineAnnealingLR: T_max must be a positive number of steps"
  end
  self.options = o
  LRScheduler.init(self, optimizer, o.last_epoch)
end

function CosineAnnealingLR:rate(step, base)
  local o = self.options
  return o.eta_min + (base - o.eta_min) * (1 + math.cos(math.pi * step / o.T_max)) / 2
end

function CosineAnnealingLR:chain(step, lr, base)
  local o = self.options
  if step == 0 then return lr end
  if (step - 1 - o.T_max) % (2 * o.T_max) == 0 then
    return lr + (base - o.eta_min) * (1 - math.cos(math.pi / o.T_max)) / 2
  end
  local function height(at) return 1 + math.cos(math.pi * at / o.T_max) end
  return height(step) / height(step - 1) * (lr - o.eta_min) + o.eta_min
end

return CosineAnnealingLR
