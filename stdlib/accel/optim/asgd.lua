--- optim.ASGD: averaged stochastic gradient descent.
local accel = require "accel"
local Optimizer = require "accel.optim.optimizer"

--- Stochastic gradient descent whose rate falls as 1 / (1 + lambd lr step)^alpha, with a running average of the
--- parameters (state `ax`) that starts after t0 steps.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.ASGD(p, {lr = 0.1}):step() return p --> { 0.79999 }
---@class accel.optim.ASGD : accel.optim.Optimizer
local ASGD = Optimizer:extend("accel.optim.ASGD")

ASGD.defaults = { lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0, maximize = false }
ASGD.buffers = { "ax" }
ASGD.numbers = { "eta", "mu" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-2: learning rate
---  lambd number = 1e-4: decay of the parameters, and of the rate
---  alpha number = 0.75: power of the fall of the rate
---  t0 number = 1e6: steps before averaging begins
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  maximize boolean = false: climb instead of descend
function ASGD:init(params, opts) Optimizer.init(self, params, opts) end

function ASGD:check_options(o) self:expect_not_negative(o, "lr", "lambd", "alpha", "weight_decay") end

function ASGD:first_number(name, group) -- luacheck: ignore self
  return name == "eta" and group.lr or 1
end

function ASGD:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.asgd_step_(step_group.params, grads, step_group.ax, lr, step_group.step, step_group.eta, step_group.mu, {
    lambd = group.lambd, alpha = group.alpha, t0 = group.t0, weight_decay = group.weight_decay,
    maximize = group.maximize,
  })
end
ASGD.spends = ASGD.update

return ASGD
