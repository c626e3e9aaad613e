--- optim.Adan: Nesterov's momentum from differences of gradients, with adaptive rates.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Adaptive Nesterov momentum (Xie and others, arXiv 2208.06677), as in the authors' code and timm: with the running means m of the
--- gradient, v of its difference d from the one before and n of (g + b2 d)^2, each without its bias towards 0, p <- (p - lr (m + b2
--- v) / (sqrt(n) + eps)) / (1 + lr weight_decay). It keeps four tensors per parameter, and takes rates 5 to 10 times AdamW's. A
--- parameter's first difference is 0.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.Adan(p, {lr = 0.1}):step() return p --> { 0.9 }
---@class accel.optim.Adan : accel.optim.Optimizer
local Adan = Optimizer:extend("accel.optim.Adan")

Adan.defaults = {
  lr = 1e-3, betas = { 0.98, 0.92, 0.99 }, eps = 1e-8, weight_decay = 0, no_prox = false, maximize = false,
}
Adan.buffers = { "exp_avg", "exp_avg_diff", "exp_avg_sq", "pre_grad" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.98, 0.92, 0.99 }: factors of the running means m, v and n
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  no_prox boolean = false: take it off before the step, as AdamW does, not by dividing after it
---  maximize boolean = false: climb instead of descend
function Adan:init(params, opts) Optimizer.init(self, params, opts) end

function Adan:check_options(o)
  self:expect_not_negative(o, "lr", "eps", "weight_decay")
  self:expect_betas(o, 3)
end

function Adan:update(group, step_group, grads, lr) -- luacheck: ignore self
  local beta1, beta2, beta3 = table.unpack(group.betas)
  local t = step_group.step:add_(1):to "f64"
  local later = t:gt(1) -- whether there is a gradient before this one
  local function unbiased(beta) return 1 - beta ^ t end
  local mean_size, diff_size = lr / unbiased(beta1), lr * beta2 / unbiased(beta2)
  local root, decay = unbiased(beta3):sqrt(), lr * group.weight_decay
  for i, p in ipairs(step_group.params) do
    local g = group.maximize and -grads[i] or grads[i]
    local before = step_group.pre_grad[i]
    local diff = accel.where(later, g - before, accel.zeros_like(g))
    before:copy_(g)
    local m = step_group.exp_avg[i]:lerp_(g, 1 - beta1)
    local v = step_group.exp_avg_diff[i]:lerp_(diff, 1 - beta2)
    local ahead = g + diff * beta2
    local n = step_group.exp_avg_sq[i]:lerp_(ahead * ahead, 1 - beta3)
    if group.no_prox and group.weight_decay > 0 then p:mul_(1 - decay) end
    p:sub_((m * mean_size + v * diff_size) / (n:sqrt() / root + group.eps))
    if not group.no_prox and group.weight_decay > 0 then p:div_(1 + decay) end
  end
end
Adan.spends = Adan.update

return Adan
