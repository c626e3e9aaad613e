--- LambdaLR: a rate by a function of the step.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- LambdaLR(optimizer, fn): base rate times fn(step). fn may be a list with one function per group.
--- example: accel.optim.lr_scheduler.LambdaLR(accel.optim.SGD(accel.ones(1), {lr = 2}), math.cos):get_last_lr() --> { 2 }
---@class accel.optim.LambdaLR : accel.optim.LRScheduler
local LambdaLR = LRScheduler:extend("accel.optim.LambdaLR")

LambdaLR._parse = arguments("LambdaLR", { "lr_lambda", list = true }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any lr_lambda, a function of the step or a list of them, and last_epoch, or a table of them
function LambdaLR:init(optimizer, ...)
  local o = self._parse(...)
  self:_take(optimizer, o.lr_lambda)
  LRScheduler.init(self, optimizer, o.last_epoch)
end

--- Checks and keeps the functions.
function LambdaLR:_take(optimizer, fn)
  local name = getmetatable(self).__name:match "[^.]*$"
  if fn == nil then raise("%s: expected a function of the step, got nil", name) end
  for i, f in ipairs(type(fn) == "table" and fn or { fn }) do
    if type(f) ~= "function" then raise("%s: function %d is %s", name, i, check.shown(f)) end
  end
  self:_attach(optimizer)
  if type(fn) == "table" and #fn ~= #optimizer.param_groups then
    raise("%s: %d functions for %d parameter groups", name, #fn, #optimizer.param_groups)
  end
  self.fn = fn
end

--- The factor of a group (by position) after `step` steps.
---@param step integer steps taken
---@param group integer position of the group
function LambdaLR:factor(step, group)
  local fn = self.fn
  return (type(fn) == "table" and fn[group] or fn)(step)
end

function LambdaLR:rate(step, base, group) return base * self:factor(step, group) end

return LambdaLR
