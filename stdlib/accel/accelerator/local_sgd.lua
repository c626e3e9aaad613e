--- LocalSGD with Accelerate's arguments: accel.dist.LocalSGD for a prepared model.
local class = require "accel.util.class"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- Local SGD around the loop of a prepared model: gradients are not averaged over ranks inside the block; after every
--- local_sgd_steps calls of step(), and at the end, parameters are. On one rank nothing happens.
---
---   local sgd <close> = accel.accelerator.LocalSGD { accelerator = accelerator, model = model, local_sgd_steps = 8 }
---
--- example: local a, net = accel.Accelerator(), accel.nn.Linear(1, 1) local sgd <close> = accel.accelerator.LocalSGD {
---   accelerator = a, model = net, local_sgd_steps = 2 } sgd:step() return sgd.num_steps --> 1
--- The values may also be given one after the other, in this order.
---@param given {accelerator: accel.Accelerator, model: accel.nn.Module, local_sgd_steps: integer, enabled: boolean?}
---@param ... any
---@return accel.dist.LocalSGD
local function LocalSGD(given, ...)
  local Accelerator = require "accel.accelerator.accelerator"
  if class.isinstance(given, Accelerator) then
    local model, local_sgd_steps, enabled = ...
    given = { accelerator = given, model = model, local_sgd_steps = local_sgd_steps, enabled = enabled }
  end
  local o = options("LocalSGD", given, {
    accelerator = options.none, model = options.none, local_sgd_steps = options.none, enabled = true,
  })
  if not class.isinstance(o.accelerator, Accelerator) then
    raise "LocalSGD: accelerator must be an Accelerator"
  end
  return dist.LocalSGD { model = o.model, local_sgd_steps = o.local_sgd_steps, enabled = o.enabled }
end

return { LocalSGD = LocalSGD }
