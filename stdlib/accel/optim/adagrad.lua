--- optim.Adagrad: rates that fall with the gradients seen.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Each element's rate falls with the sum of its squared gradients, which starts at initial_accumulator_value. lr_decay
--- lowers the common rate by the step count.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adagrad(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Adagrad : accel.optim.Optimizer
local Adagrad = Optimizer:extend("accel.optim.Adagrad")

Adagrad.defaults = {
  lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10, maximize = false,
}
Adagrad.buffers = { "sum" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate
---  lr_decay number = 0: lowers the rate by 1 / (1 + lr_decay * steps)
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  initial_accumulator_value number = 0: the initial sum of squares
---  eps number = 1e-10: added to the denominator
---  maximize boolean = false: climb instead of descend
function Adagrad:init(params, opts) Optimizer.init(self, params, opts) end

function Adagrad:check_options(o)
  self:expect_not_negative(o, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
end

function Adagrad:make_state(p, group) -- luacheck: ignore self
  return { sum = accel.full_like(p, group.initial_accumulator_value) }
end

function Adagrad:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.adagrad_step_(step_group.params, grads, step_group.sum, lr, step_group.step, {
    lr_decay = group.lr_decay, weight_decay = group.weight_decay, eps = group.eps, maximize = group.maximize,
  })
end
Adagrad.spends = Adagrad.update

return Adagrad
