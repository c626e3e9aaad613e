--- CosineAnnealingLR{T_max=, eta_min = 0}: half a cosine from the base rate to eta_min in T_max steps; it
--- rises again after that, as PyTorch's does.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.optim.CosineAnnealingLR : accel.optim.LRScheduler
local CosineAnnealingLR = LRScheduler:extend("accel.optim.CosineAnnealingLR")

---@param optimizer accel.optim.Optimizer
---@param opts {T_max: integer, eta_min: number?, last_epoch: integer?}
function CosineAnnealingLR:init(optimizer, opts)
  local o = options("CosineAnnealingLR", opts, { T_max = options.none, eta_min = 0.0, last_epoch = -1 })
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

return CosineAnnealingLR
