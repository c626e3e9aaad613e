--- optim.AdamWScheduleFree: AdamW without a schedule.
local accel = require "accel"
local ScheduleFree = require "accel.optim.schedule_free"
local Optimizer = require "accel.optim.optimizer"

--- AdamW on schedule-free iterates (see schedule_free.lua). warmup_steps raises the rate linearly. r and
--- weight_lr_power weigh the average by step^r and by the largest rate so far.
--- example: accel.optim.AdamWScheduleFree({ accel.ones(1) }).param_groups[1].lr --> 0.0025
---@class accel.optim.AdamWScheduleFree : accel.optim.ScheduleFree
local AdamWScheduleFree = ScheduleFree:extend("accel.optim.AdamWScheduleFree")

AdamWScheduleFree.defaults = {
  lr = 0.0025, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, warmup_steps = 0, r = 0.0,
  weight_lr_power = 2.0, train_mode = false,
}
AdamWScheduleFree.buffers = { "z", "exp_avg_sq" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 0.0025: learning rate
---  betas number[] = { 0.9, 0.999 }: the share of x in y, and the factor of the running mean of squares
---  eps number = 1e-8: added to the denominator
---  weight_decay number = 0: share of the parameter that each step takes off, times lr
---  warmup_steps integer = 0: steps over which the rate rises
---  r number = 0.0: power of the step in the weight of the average
---  weight_lr_power number = 2.0: power of the largest rate so far in that weight
---  train_mode boolean = false: set by train and eval: whether the parameters hold y
function AdamWScheduleFree:init(params, opts) Optimizer.init(self, params, opts) end

function AdamWScheduleFree:check_options(o)
  ScheduleFree.check_options(self, o)
  self:expect_not_negative(o, "eps")
  self:expect_betas(o)
  self:expect(o.betas[1] > 0, "beta 1 must be above 0")
end

function AdamWScheduleFree:share(group) return group.betas[1] end -- luacheck: ignore self

function AdamWScheduleFree:make_state(p) -- luacheck: ignore self
  return { z = p:detach():clone(), exp_avg_sq = accel.zeros_like(p) }
end

function AdamWScheduleFree:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.adamw_schedule_free_step_(step_group.params, grads, step_group.z, step_group.exp_avg_sq, lr, step_group.step,
    step_group.weight_sum, step_group.lr_max, {
    beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps, weight_decay = group.weight_decay,
    warmup_steps = group.warmup_steps, r = group.r, weight_lr_power = group.weight_lr_power,
  })
end
AdamWScheduleFree.spends = AdamWScheduleFree.update

return AdamWScheduleFree
