--- LocalSGD with Accelerate's arguments: accel.dist.LocalSGD for a prepared model.
local class = require "accel.util.class"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- Local SGD around the loop of a prepared model: gradients are not averaged over ranks inside the block. Instead, parameters are
--- averaged after every local_sgd_steps calls of step(), and at the end. On one rank nothing happens. Every rank needs the whole model:
--- with FSDP's, DeepSpeed's or Megatron's plugin, and on a mesh that divides the model, it raises, as in Accelerate.
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
  local a = o.accelerator
  for _, plugin in ipairs { "fsdp_plugin", "deepspeed_plugin", "megatron_lm_plugin" } do
    if a[plugin] then
      raise("LocalSGD: every rank needs the whole model, which the Accelerator's %s shards; leave the plugin out, or train without LocalSGD", plugin)
    end
  end
  if rawget(a, "_elastic") then
    raise "LocalSGD: an elastic job averages gradients in every update; leave LocalSGD out, or start the job with --num-processes"
  end
  local parallel = a._parallel
  if parallel and parallel:axis "data".size < a.num_processes then
    raise "LocalSGD: every rank needs the whole model and its own data; leave tp_size, pp_size, cp_size, sp_size and ep_size at 1"
  end
  return dist.LocalSGD { model = o.model, local_sgd_steps = o.local_sgd_steps, enabled = o.enabled }
end

return { LocalSGD = LocalSGD }
