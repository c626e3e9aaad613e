--- Factors of gradients that are put off to the step that uses them, which multiplies in its own pass over memory
--- (Optimizer:fuses). Clipping makes them (nn.utils). Optimizers, and code that steps in their place, use them up.
---
--- A factor belongs to the gradients that it was made for: it ends with these, and gradients that come in their place
--- have none. Adding to one of them in a backward raises. Who wants them multiplied at once calls apply or among.
local accel = require "accel"
local divided = require "accel.nn.divided"
local core = require "accel.optim.core"

local M = {}

local waiting = setmetatable({}, { __mode = "k" }) -- optimizers with a factor that is put off

--- Parameters that a backward has stepped and whose gradients it has dropped, until their optimizer's step (accelerator/low_memory.lua).
M.consumed = setmetatable({}, { __mode = "k" })

--- Calls fn with a list of gradients, or one by one if they have their home in a file (accel.offload.step).
---@param grads accel.Tensor[]
---@param fn fun(list: accel.Tensor[])
function M.each(grads, fn)
  local step = divided.steps
  if step then return step.each(grads, fn) end
  fn(grads)
end

local function mark(optimizer, on)
  for _, group in ipairs(optimizer.param_groups) do core.defer(group.params, on) end
end

--- Puts off a factor, a rank-0 tensor, of all gradients that the optimizer's parameters have now.
---@param optimizer accel.optim.Optimizer
---@param factor accel.Tensor
function M.put(optimizer, factor)
  optimizer.inv_scale, waiting[optimizer] = factor, true
  mark(optimizer, true)
end

--- Forgets the factor: the gradients were used, or are not to be.
---@param optimizer accel.optim.Optimizer
function M.drop(optimizer)
  if not waiting[optimizer] then return end
  waiting[optimizer], optimizer.inv_scale = nil, nil
  mark(optimizer, false)
end

--- Multiplies the gradients at once, those that are still the ones that the factor was made for.
---@param optimizer accel.optim.Optimizer
function M.apply(optimizer)
  local factor = optimizer.inv_scale
  local _ <close> = accel.no_grad()
  for _, group in ipairs(optimizer.param_groups) do
    local grads = {}
    for _, grad in ipairs((core.gradients(group.params, true))) do grads[#grads + 1] = grad or nil end
    if #grads > 0 then
      M.each(grads, function(list)
        accel.amp_foreach_unscale_(list, accel.zeros({}, { device = list[1].device }), factor)
      end)
      core.spend(grads)
    end
  end
  M.drop(optimizer)
end

--- The same for all optimizers, if a gradient among these still is to be multiplied: before it is looked at or changed.
---@param params accel.Tensor[]
function M.among(params)
  if next(waiting) == nil or select(2, core.count(params)) == 0 then return end
  for optimizer in next, waiting do M.apply(optimizer) end
end

--- Before a step: leaves a factor that is for all gradients which the step finds, if the step can take it.
---@param optimizer accel.optim.Optimizer
function M.prepare(optimizer)
  if not waiting[optimizer] then return end
  local there, due = 0, 0
  for _, group in ipairs(optimizer.param_groups) do
    local n, m = core.count(group.params)
    there, due = there + n, due + m
  end
  if due == 0 then M.drop(optimizer)
  elseif due < there or not optimizer:fuses() then M.apply(optimizer) end
end

return M
