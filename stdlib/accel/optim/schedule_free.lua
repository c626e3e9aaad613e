--- The common part of the schedule-free optimizers.
local accel = require "accel"
local check = require "accel.util.check"
local Optimizer = require "accel.optim.optimizer"
local raise = require "accel.util.raise"

--- The base of schedule-free optimizers ("The Road Less Scheduled", Defazio and others): no schedule and no end of
--- training to plan for. Gradients are taken at y, between the iterates z and their running average x. x is the model
--- to use. The parameters hold y while training and x else, so say optimizer:train() before training and
--- optimizer:eval() before evaluating or saving a model. Numbers of the average are kept per parameter.
---@class accel.optim.ScheduleFree : accel.optim.Optimizer
local ScheduleFree = Optimizer:extend("accel.optim.ScheduleFree")

ScheduleFree.numbers = { "weight_sum", "lr_max" }

function ScheduleFree:check_options(o)
  self:expect_not_negative(o, "lr", "weight_decay")
  if math.tointeger(o.warmup_steps) ~= 0 then check.positive("ScheduleFree", "warmup_steps", o.warmup_steps) end
end

--- Subclasses: the share of x in y.
---@return number
function ScheduleFree:share(group) return group.momentum end -- luacheck: ignore self

--- Moves the parameters of every group by weight(share) towards z.
local function switch(self, to_train, weight)
  local sharding = self:_shards() -- whose parts all ranks move alike
  if sharding then sharding:before() end
  local _ <close> = accel.no_grad()
  for _, group in ipairs(self.param_groups) do
    if group.train_mode ~= to_train then
      for _, step_group in ipairs(self._private[group].step_groups) do
        accel.foreach_lerp_(step_group.params, step_group.z, weight(self:share(group)))
      end
      group.train_mode = to_train
    end
  end
  if sharding then sharding:after() end
end

--- The parameters become y, the point of the gradients.
function ScheduleFree:train() switch(self, true, function(share) return 1 - share end) end

--- The parameters become x, the average, for evaluation and saving.
function ScheduleFree:eval() switch(self, false, function(share) return 1 - 1 / share end) end

function ScheduleFree:step(closure, ...)
  for _, group in ipairs(self.param_groups) do
    if not group.train_mode then
      raise("%s: the parameters hold the averaged model; call optimizer:train() before training",
        getmetatable(self).__name:match "[^.]*$")
    end
  end
  return Optimizer.step(self, closure, ...)
end

return ScheduleFree
