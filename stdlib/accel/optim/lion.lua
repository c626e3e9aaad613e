--- optim.Lion: signs of an interpolated momentum.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Steps of one size by the sign of an interpolated momentum, with decoupled weight decay. It wants a rate
--- 3 to 10 times smaller and a decay as much larger than AdamW.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Lion(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Lion : accel.optim.Optimizer
local Lion = Optimizer:extend("accel.optim.Lion")

Lion.defaults = { lr = 1e-4, betas = { 0.9, 0.99 }, weight_decay = 0, maximize = false }
Lion.buffers = { "exp_avg" }
Lion.counts = false

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-4: learning rate
---  betas number[] = { 0.9, 0.99 }: factors of the momentum in the step and in its own update
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  maximize boolean = false: climb instead of descend
function Lion:init(params, opts) Optimizer.init(self, params, opts) end

function Lion:check_options(o)
  self:expect_not_negative(o, "lr", "weight_decay")
  self:expect_betas(o)
end

function Lion:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.lion_step_(step_group.params, grads, step_group.exp_avg, lr, {
    beta1 = group.betas[1], beta2 = group.betas[2], weight_decay = group.weight_decay, maximize = group.maximize,
  })
end
Lion.spends = Lion.update

return Lion
