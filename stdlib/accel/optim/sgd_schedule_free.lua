--- optim.SGDScheduleFree: stochastic gradient descent without a schedule.
local accel = require "accel"
local ScheduleFree = require "accel.optim.schedule_free"
local Optimizer = require "accel.optim.optimizer"

--- Stochastic gradient descent on schedule-free iterates (see schedule_free.lua). warmup_steps raises the rate
--- linearly. r and weight_lr_power weigh the average by step^r and by the largest rate so far. Use rates 10 to 50 times
--- those for SGD with a schedule.
--- example: accel.optim.SGDScheduleFree({ accel.ones(1) }).param_groups[1].lr --> 1.0
---@class accel.optim.SGDScheduleFree : accel.optim.ScheduleFree
local SGDScheduleFree = ScheduleFree:extend("accel.optim.SGDScheduleFree")

SGDScheduleFree.defaults = {
  lr = 1.0, momentum = 0.9, weight_decay = 0, warmup_steps = 0, r = 0.0, weight_lr_power = 2.0, train_mode = false,
}
SGDScheduleFree.buffers = { "z" }

---@param params accel.ParamList
---@param opts? table
---  lr number = 1.0: learning rate
---  momentum number = 0.9: the share of x in y
---  weight_decay number = 0: how much of the parameter joins its gradient (L2)
---  warmup_steps integer = 0: steps over which the rate rises
---  r number = 0.0: power of the step in the weight of the average
---  weight_lr_power number = 2.0: power of the largest rate so far in that weight
---  train_mode boolean = false: set by train and eval: whether the parameters hold y
function SGDScheduleFree:init(params, opts) Optimizer.init(self, params, opts) end

function SGDScheduleFree:check_options(o)
  ScheduleFree.check_options(self, o)
  self:expect(o.momentum > 0 and o.momentum < 1, "momentum must lie between 0 and 1, got %s", tostring(o.momentum))
end

function SGDScheduleFree:make_state(p) return { z = p:detach():clone() } end -- luacheck: ignore self

function SGDScheduleFree:update(group, step_group, grads, lr) -- luacheck: ignore self
  accel.sgd_schedule_free_step_(step_group.params, grads, step_group.z, lr, step_group.step, step_group.weight_sum, step_group.lr_max, {
    momentum = group.momentum, weight_decay = group.weight_decay, warmup_steps = group.warmup_steps, r = group.r,
    weight_lr_power = group.weight_lr_power,
  })
end
SGDScheduleFree.spends = SGDScheduleFree.update

return SGDScheduleFree
