--- optim.Adadelta: updates scaled by their own running size.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Gradients scaled by the ratio of the running sizes of past updates and gradients.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adadelta(p, {lr = 100}):step() return p --> { 0.68377 }
---@class accel.optim.Adadelta : accel.optim.Optimizer
local Adadelta = Optimizer:extend("accel.optim.Adadelta")

Adadelta.defaults = { lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false }
Adadelta.buffers = { "square_avg", "acc_delta" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1.0: factor of the updates
---  rho number = 0.9: factor of the running means of squares
---  eps number = 1e-6: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  maximize boolean = false: climb instead of descend
function Adadelta:init(params, opts) Optimizer.init(self, params, opts) end

function Adadelta:check_options(o)
  self:expect_not_negative(o, "lr", "rho", "eps", "weight_decay")
  self:expect(o.rho <= 1, "rho must lie in [0, 1], got %s", tostring(o.rho))
end

function Adadelta:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.adadelta_step_(step_group.params, grads, step_group.square_avg, step_group.acc_delta, lr, step_group.step, {
    rho = group.rho, eps = group.eps, weight_decay = group.weight_decay, maximize = group.maximize,
  })
end
Adadelta.spends = Adadelta.update

return Adadelta
