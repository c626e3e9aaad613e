--- Optimizers with parameters of no prepared model: ranks neither divide nor average their gradients. Used by prepare_checks.lua,
--- prepare.lua and optimizer.lua.
local Trained = require "accel.nn.trained"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local held = Trained.held

--- Notes the parameters of a prepared model, even if no wrapper watches it.
---@param model accel.nn.Module
function M.note(model)
  for _, p in ipairs(model:parameters()) do held[p] = true end
end

--- Raises for the first parameter of an optimizer that learns and that no model has. The reference raises KeyError.
---@param accelerator accel.Accelerator
---@param optimizer accel.optim.Optimizer
---@param who string
---@param models? accel.nn.Module[] in addition to the prepared ones
---@param first? integer the group to begin with [1]
function M.check(accelerator, optimizer, who, models, first)
  local known, owners = {}, package.loaded["accel.shard.owners"]
  for _, list in ipairs { accelerator._prepared.models, models or {} } do
    for _, model in ipairs(list) do
      for _, p in ipairs(model:parameters()) do known[p] = true end
    end
  end
  for g = first or 1, #optimizer.param_groups do
    for k, p in ipairs(optimizer.param_groups[g].params) do
      if p.requires_grad and not (known[p] or held[p] or owners and owners.engine_of[p]) then
        raise("%s: parameter %d of group %d, shape %s, belongs to no prepared model, and ranks would not average its gradients (KeyError);"
          .. " make the optimizer from the parameters of the model that you prepare with it", who, k, g, tensors.shape_string(p))
      end
    end
  end
end

--- Whether an Accelerator divides models.
---@param accelerator accel.Accelerator
---@return boolean
function M.divides(accelerator) return accelerator.fsdp_plugin ~= nil or accelerator.deepspeed_plugin ~= nil end

--- Whether it matters that an optimizer has such parameters.
---@param accelerator accel.Accelerator
---@return boolean
function M.counts(accelerator)
  return M.divides(accelerator) or accelerator.num_processes > 1 and #accelerator._prepared.models > 0
end

return M
