--- CyclicLR: a rate that goes up and down.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local per_group = require "accel.optim.lr_scheduler.per_group"
local raise = require "accel.util.raise"

--- CyclicLR(optimizer, base_lr, max_lr, step_size_up = 2000, {...}): from base_lr to max_lr in step_size_up steps and
--- back in step_size_down. The height is scaled by mode: "triangular" not at all, "triangular2" halved with each cycle,
--- "exp_range" by gamma^step, or by scale_fn(x) of the cycle (from 1) or, with scale_mode "iterations", of the step.
--- Momentum (or the first beta) goes the other way, between max_momentum and base_momentum, unless cycle_momentum is
--- false.
--- example: accel.optim.lr_scheduler.CyclicLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 0.1, 0.5, 6):get_last_lr() --> { 0.1 }
---@class accel.optim.CyclicLR : accel.optim.LRScheduler
local CyclicLR = LRScheduler:extend("accel.optim.CyclicLR")

local parse = arguments("CyclicLR", { "base_lr", list = true }, { "max_lr", list = true }, { "step_size_up", 2000 },
  { "step_size_down" }, { "mode", "triangular" }, { "gamma", 1.0 }, { "scale_fn" }, { "scale_mode", "cycle" },
  { "cycle_momentum", true }, { "base_momentum", 0.8, list = true }, { "max_momentum", 0.9, list = true },
  { "last_epoch", -1 })

local scales = {
  triangular = function() return 1.0 end,
  triangular2 = function(cycle) return 1 / 2.0 ^ (cycle - 1) end,
  exp_range = function(step, gamma) return gamma ^ step end,
}

---@param optimizer accel.optim.Optimizer
---@param ... any base_lr, max_lr, step_size_up, ..., or a table of them
function CyclicLR:init(optimizer, ...)
  local o = parse(...)
  check.positive("CyclicLR", "step_size_up", o.step_size_up)
  o.step_size_down = check.positive("CyclicLR", "step_size_down", o.step_size_down or o.step_size_up)
  check.word("CyclicLR", "scale_mode", o.scale_mode, { "cycle", "iterations" })
  if o.scale_fn == nil then
    if o.scale_mode ~= "cycle" then no_effect.once("CyclicLR", "scale_mode", "without scale_fn, because the mode defines its own scale") end
    if o.gamma ~= 1 and o.mode ~= "exp_range" then no_effect.once("CyclicLR", "gamma", "with mode = '" .. o.mode .. "'; set mode = 'exp_range'") end
    check.word("CyclicLR", "mode", o.mode, { "triangular", "triangular2", "exp_range" })
    o.scale_fn, o.scale_mode = scales[o.mode], o.mode == "exp_range" and "iterations" or "cycle"
  elseif type(o.scale_fn) ~= "function" then
    raise("CyclicLR: scale_fn must be a function, got %s", check.shown(o.scale_fn))
  end
  self:_attach(optimizer)
  local groups = #optimizer.param_groups
  self.options = o
  self.base_lr = per_group("CyclicLR", "base_lr", o.base_lr, groups)
  self.max_lr = per_group("CyclicLR", "max_lr", o.max_lr, groups)
  if o.cycle_momentum then
    self:_expect_momentum()
    self.base_momentum = per_group("CyclicLR", "base_momentum", o.base_momentum, groups)
    self.max_momentum = per_group("CyclicLR", "max_momentum", o.max_momentum, groups)
  end
  for i, group in ipairs(optimizer.param_groups) do group.initial_lr = group.initial_lr or self.base_lr(i) end
  LRScheduler.init(self, optimizer, o.last_epoch)
end

--- How far from the base value to the other one: 0 to 1, scaled.
local function height(self, step)
  local o = self.options
  local total = o.step_size_up + o.step_size_down
  local up = o.step_size_up / total
  local cycle = math.floor(1 + step / total)
  local x = 1 + step / total - cycle
  local factor = x <= up and x / up or (x - 1) / (up - 1)
  return factor * o.scale_fn(o.scale_mode == "cycle" and cycle or step, o.gamma)
end

function CyclicLR:rate(step, _, group)
  local low = self.base_lr(group)
  return low + (self.max_lr(group) - low) * height(self, step)
end

function CyclicLR:momentum(step, group)
  if not self.options.cycle_momentum then return nil end
  local top = self.max_momentum(group)
  return top - (top - self.base_momentum(group)) * height(self, step)
end

return CyclicLR
