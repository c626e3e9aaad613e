--- optim.AdamW: decoupled weight decay p <- p * (1 - lr * wd), then Adam with bias correction by the step
--- count; one multi-tensor call per cohort. State is kept in the parameter's dtype.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

---@class accel.optim.AdamW : accel.optim.Optimizer
local AdamW = Optimizer:extend("accel.optim.AdamW")

AdamW.defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01, maximize = false }
AdamW.buffers = { "exp_avg", "exp_avg_sq" }

---@param params accel.ParamList
---@param opts? {lr: number?, betas: number[]?, eps: number?, weight_decay: number?, maximize: boolean?}
function AdamW:init(params, opts) Optimizer.init(self, params, opts) end

function AdamW:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay")
  self:expect(#o.betas == 2, "betas must be two numbers, got %d", #o.betas)
  for i = 1, 2 do
    local beta = o.betas[i]
    self:expect(type(beta) == "number" and beta >= 0 and beta < 1, "beta %d must lie in [0, 1), got %s", i,
      tostring(beta))
  end
end

function AdamW:update(group, cohort, grads, lr)
  accel.adamw_step_(cohort.params, grads, cohort.exp_avg, cohort.exp_avg_sq, lr, cohort.step, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    maximize = group.maximize,
  })
end

return AdamW
