--- optim.AdamW: Adam with decoupled weight decay.
local accel = require "accel"
local Adam = require "accel.optim.adam"
local Optimizer = require "accel.optim.optimizer"

--- Decoupled weight decay p <- p * (1 - lr * wd), then Adam's step.
--- example: local p = accel.ones(1) p.grad = p * 2 accel.optim.AdamW(p, {lr = 0.1}):step() return p --> { 0.899 }
---@class accel.optim.AdamW : accel.optim.Adam
local AdamW = Adam:extend("accel.optim.AdamW")

AdamW.defaults = {
  lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01, amsgrad = false, maximize = false,
}
AdamW.step_op = accel.adamw_step_

---@param params accel.ParamList
---@param opts? table
---  lr number = 1e-3: learning rate
---  betas number[] = { 0.9, 0.999 }: factors of the running means of the gradient and of its square
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0.01: share of the parameter that each step takes off, times lr
---  amsgrad boolean = false: divide by the largest second moment so far
---  maximize boolean = false: climb instead of descend
function AdamW:init(params, opts) Optimizer.init(self, params, opts) end

return AdamW
