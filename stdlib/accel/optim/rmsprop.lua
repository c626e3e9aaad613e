--- optim.RMSprop: gradients over their running size.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Gradients divided by the root of a running mean of their squares, less the square of their mean when
--- centered, with momentum on the quotient.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.RMSprop(p):step() return p --> { 0.9 }
---@class accel.optim.RMSprop : accel.optim.Optimizer
local RMSprop = Optimizer:extend("accel.optim.RMSprop")

RMSprop.defaults = {
  lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false, maximize = false,
}
RMSprop.buffers = { "square_avg", "momentum_buffer", "grad_avg" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate
---  alpha number = 0.99: factor of the running mean of squares
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  momentum number = 0: factor of the running sum of updates. 0: none
---  centered boolean = false: take off the square of the mean gradient
---  maximize boolean = false: climb instead of descend
function RMSprop:init(params, opts) Optimizer.init(self, params, opts) end

function RMSprop:check_options(o)
  self:expect_not_negative(o, "lr", "alpha", "eps", "weight_decay", "momentum")
end

function RMSprop:make_state(p, group) -- luacheck: ignore self
  return {
    square_avg = accel.zeros_like(p), momentum_buffer = group.momentum ~= 0 and accel.zeros_like(p) or nil,
    grad_avg = group.centered and accel.zeros_like(p) or nil,
  }
end

function RMSprop:update(group, step_group, grads, lr)
  local moving = group.momentum ~= 0
  if moving then self:complete(step_group, "momentum_buffer") end
  if group.centered then self:complete(step_group, "grad_avg") end
  accel.rmsprop_step_(step_group.params, grads, step_group.square_avg, lr, step_group.step, {
    alpha = group.alpha, eps = group.eps, weight_decay = group.weight_decay, momentum = group.momentum,
    maximize = group.maximize, momentum_buffers = moving and step_group.momentum_buffer or nil,
    grad_avgs = group.centered and step_group.grad_avg or nil,
  })
end
RMSprop.spends = RMSprop.update

return RMSprop
