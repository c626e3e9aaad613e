--- optim.NAdam: Adam with Nesterov's momentum.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Adam with Nesterov's momentum, whose factor rises towards betas[1] at the pace of momentum_decay.
--- decoupled_weight_decay applies weight decay as AdamW does.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.NAdam(p, {lr = 0.1}):step() return p --> { 0.8944 }
---@class accel.optim.NAdam : accel.optim.Optimizer
local NAdam = Optimizer:extend("accel.optim.NAdam")

NAdam.defaults = {
  lr = 2e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3,
  decoupled_weight_decay = false, maximize = false,
}
NAdam.buffers = { "exp_avg", "exp_avg_sq" }
NAdam.numbers = { "mu_product" }
NAdam.number_dtype = "f32" -- as PyTorch keeps it

---@param params accel.ParamList
---@param opts? table
---  lr number = 2e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  momentum_decay number = 4e-3: pace at which the momentum rises
---  decoupled_weight_decay boolean = false: weight decay as AdamW's
---  maximize boolean = false: climb instead of descend
function NAdam:init(params, opts) Optimizer.init(self, params, opts) end

function NAdam:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay", "momentum_decay")
  self:expect_betas(o)
end

function NAdam:first_number() return 1 end -- luacheck: ignore self

function NAdam:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.nadam_step_(step_group.params, grads, step_group.exp_avg, step_group.exp_avg_sq, step_group.mu_product, lr, step_group.step, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    momentum_decay = group.momentum_decay, decoupled_weight_decay = group.decoupled_weight_decay,
    maximize = group.maximize,
  })
end
NAdam.spends = NAdam.update

return NAdam
