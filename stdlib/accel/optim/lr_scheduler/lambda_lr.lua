--- LambdaLR(optimizer, fn): base rate times fn(step); fn may be a list with one function per group.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

---@class accel.optim.LambdaLR : accel.optim.LRScheduler
local LambdaLR = LRScheduler:extend("accel.optim.LambdaLR")

---@param optimizer accel.optim.Optimizer
---@param fn (fun(step: integer): number)|(fun(step: integer): number)[]
---@param last_epoch? integer
function LambdaLR:init(optimizer, fn, last_epoch)
  if fn == nil then raise "LambdaLR: expected a function of the step, got nil" end
  for i, f in ipairs(type(fn) == "table" and fn or { fn }) do
    if type(f) ~= "function" then raise("LambdaLR: function %d is %s", i, check.shown(f)) end
  end
  if type(fn) == "table" and #fn ~= #optimizer.param_groups then
    raise("LambdaLR: %d functions for %d parameter groups", #fn, #optimizer.param_groups)
  end
  self.fn = fn
  LRScheduler.init(self, optimizer, last_epoch)
end

function LambdaLR:rate(step, base, group)
  local fn = self.fn
  return base * (type(fn) == "table" and fn[group] or fn)(step)
end

return LambdaLR
