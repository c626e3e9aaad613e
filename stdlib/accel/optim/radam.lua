--- optim.RAdam: Adam with a rectified rate.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Adam whose adaptive rate is rectified while the second moment is based on few steps. The first ones use the mean
--- gradient alone. decoupled_weight_decay applies weight decay as AdamW does.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.RAdam(p, {lr = 0.1}):step() return p --> { 0.8 }
---@class accel.optim.RAdam : accel.optim.Optimizer
local RAdam = Optimizer:extend("accel.optim.RAdam")

RAdam.defaults = {
  lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, decoupled_weight_decay = false,
  maximize = false,
}
RAdam.buffers = { "exp_avg", "exp_avg_sq" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  decoupled_weight_decay boolean = false: weight decay as AdamW's
---  maximize boolean = false: climb instead of descend
function RAdam:init(params, opts) Optimizer.init(self, params, opts) end

function RAdam:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay")
  self:expect_betas(o)
end

function RAdam:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.radam_step_(step_group.params, grads, step_group.exp_avg, step_group.exp_avg_sq, lr, step_group.step, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    decoupled_weight_decay = group.decoupled_weight_decay, maximize = group.maximize,
  })
end
RAdam.spends = RAdam.update

return RAdam
