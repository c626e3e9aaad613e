--- Steps of one parameter at a time, in a backward, for optimizer.lua. Accelerator { memory = "low" } calls the stepper when a gradient is
--- complete (accelerator/low_memory.lua). The optimizer's step() comes after the backward: it finds no gradients, and counts the step.
local accel = require "accel"
local core = require "accel.optim.core"
local deferred = require "accel.nn.deferred"
local raise = require "accel.util.raise"

local M = {}

local unscoped = accel.unscoped

--- Gives each parameter of the groups a step group of its own, with its own count of steps, so that the numbers are those of a common step.
--- Returns parameter -> { group, step group if it has a state }.
local function divide(self)
  local places = {}
  for _, group in ipairs(self.param_groups) do
    local private = self._private[group]
    local groups = private.step_groups
    private.step_groups = {}
    for _, step_group in ipairs(groups) do
      if #step_group.params == 1 then
        private.step_groups[#private.step_groups + 1] = step_group
      else
        for _, p in ipairs(step_group.params) do
          local shared = { step = step_group.step and unscoped(step_group.step.clone, step_group.step) }
          for _, name in ipairs(self.numbers) do shared[name] = unscoped(step_group[name].clone, step_group[name]) end
          self:_new_step_group(private, { p }, shared, step_group.fresh)
        end
      end
    end
    for _, step_group in ipairs(private.step_groups) do places[step_group.params[1]] = { group, step_group } end
    for _, p in ipairs(private.pending) do places[p] = { group } end
  end
  return places
end

--- A function that steps one parameter, which has a gradient, now, and drops the gradient.
---@param self accel.optim.Optimizer
---@param admit function of optimizer.lua
---@param device_lr function of optimizer.lua
---@return fun(p: accel.Tensor)
function M.stepper(self, admit, device_lr)
  for _, group in ipairs(self.param_groups) do deferred.among(group.params) end
  deferred.drop(self) -- a factor of gradients that are gone
  local places = divide(self)
  return function(p)
    local group, step_group = table.unpack(places[p])
    local private = self._private[group]
    local _ <close> = accel.no_grad()
    if not step_group then
      local pending = private.pending
      private.pending = { p }
      unscoped(admit, self, private, group)
      for i, each in ipairs(pending) do
        if rawequal(each, p) then table.remove(pending, i) break end
      end
      private.pending, step_group = pending, private.step_groups[#private.step_groups]
    end
    local grads = core.gradients(step_group.params)
    self:update(group, step_group, grads, device_lr(private, group))
    core.spend(grads)
    step_group.fresh = false
    core.zero(step_group.params)
  end
end

--- Before a step: raises if parameters that stepped in the backward have got a gradient since, from another backward.
---@param self accel.optim.Optimizer
function M.check(self)
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      if deferred.consumed[p] and p.grad then
        raise('optimizer:step(): memory = "low" has stepped in accelerator:backward, and another backward has given the same parameters gradients'
          .. ' since; add the losses and call accelerator:backward once, or set memory = "reduced"')
      end
    end
  end
end

--- After a step: the next backward may step again.
---@param self accel.optim.Optimizer
function M.finish(self)
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do deferred.consumed[p] = nil end
  end
end

return M
