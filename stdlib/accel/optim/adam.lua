--- optim.Adam: adaptive moments.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"
local original = require "accel.util.checked".original

--- Running means of the gradient and of its square with bias correction by the step count. Weight decay is added to the
--- gradient (L2). For decoupled decay see AdamW. amsgrad divides by the largest second moment so far. One multi-tensor
--- call per step group. States have the parameter's dtype.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adam(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Adam : accel.optim.Optimizer
local Adam = Optimizer:extend("accel.optim.Adam")

Adam.defaults = {
  lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, amsgrad = false, maximize = false,
}
Adam.buffers = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  amsgrad boolean = false: divide by the largest second moment so far
---  maximize boolean = false: climb instead of descend
function Adam:init(params, opts) Optimizer.init(self, params, opts) end

function Adam:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay")
  self:expect_betas(o)
end

function Adam:make_state(p, group) -- luacheck: ignore self
  return {
    exp_avg = accel.zeros_like(p), exp_avg_sq = accel.zeros_like(p),
    max_exp_avg_sq = group.amsgrad and accel.zeros_like(p) or nil,
  }
end

--- The op of the step. AdamW has its own.
Adam.step_op = accel.adam_step_

function Adam:update(group, step_group, grads, lr)
  if group.amsgrad then self:complete(step_group, "max_exp_avg_sq") end
  self.step_op(step_group.params, grads, step_group.exp_avg, step_group.exp_avg_sq, lr, step_group.step, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    maximize = group.maximize, max_exp_avg_sqs = group.amsgrad and step_group.max_exp_avg_sq or nil,
    inv_scale = self.inv_scale, found_inf = self.found_inf,
  })
end
function Adam:fuses() return original(self.update) == original(Adam.update) end
Adam.spends = Adam.update

return Adam
