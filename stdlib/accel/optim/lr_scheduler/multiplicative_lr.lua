--- MultiplicativeLR: a rate changed by a function's factor in every step.
local LambdaLR = require "accel.optim.lr_scheduler.lambda_lr"
local arguments = require "accel.util.arguments"

--- MultiplicativeLR(optimizer, fn): the rate times fn(step) in every step after the first. fn may be a list with one
--- function per group. It must give the same numbers when a run is resumed.
--- example: accel.optim.lr_scheduler.MultiplicativeLR(accel.optim.SGD(accel.ones(1), {lr = 2}), math.cos):get_last_lr() --> { 2 }
---@class accel.optim.MultiplicativeLR : accel.optim.LambdaLR
local MultiplicativeLR = LambdaLR:extend("accel.optim.MultiplicativeLR")

MultiplicativeLR._parse = arguments("MultiplicativeLR", { "lr_lambda", list = true }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any as of LambdaLR
function MultiplicativeLR:init(optimizer, ...)
  self.products = {} -- by group: {step, product of the factors up to it}
  LambdaLR.init(self, optimizer, ...)
end

function MultiplicativeLR:rate(step, base, group)
  local known = self.products[group]
  if not known or known[1] > step then known = { 0, 1.0 } end
  local at, product = known[1], known[2]
  while at < step do
    at = at + 1
    product = product * self:factor(at, group)
  end
  self.products[group] = { at, product }
  return base * product
end

function MultiplicativeLR:chain(step, lr, _, group) return step > 0 and lr * self:factor(step, group) or lr end

return MultiplicativeLR
