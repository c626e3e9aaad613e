--- optim.Adamax: Adam in the infinity norm.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Adam with the largest recent gradient (the infinity norm) in place of the second moment.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adamax(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Adamax : accel.optim.Optimizer
local Adamax = Optimizer:extend("accel.optim.Adamax")

Adamax.defaults = { lr = 2e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, maximize = false }
Adamax.buffers = { "exp_avg", "exp_inf" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 2e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running mean of the gradient and of its largest size
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  maximize boolean = false: climb instead of descend
function Adamax:init(params, opts) Optimizer.init(self, params, opts) end

function Adamax:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay")
  self:expect_betas(o)
end

function Adamax:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.adamax_step_(step_group.params, grads, step_group.exp_avg, step_group.exp_inf, lr, step_group.step, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    maximize = group.maximize,
  })
end
Adamax.spends = Adamax.update

return Adamax
