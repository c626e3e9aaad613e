--- Optimizers of models that are on several ranks: they step on what this rank has. Called by accelerator:prepare; by hand where a
--- script makes the parallel model itself.
local absent = require "accel.parallel.absent"
local class = require "accel.util.class"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"

local M = {}

--- Takes parameters that other stages have out of an optimizer, and refuses one that looks at whole matrices where ranks have parts.
---@param optimizer accel.optim.Optimizer before its first step
---@return accel.optim.Optimizer optimizer
function M.adopt(optimizer)
  local whole = optimizer._whole_groups or {} -- what all ranks have together, for checkpoints
  for g, group in ipairs(optimizer.param_groups) do
    local kept = {}
    for _, p in ipairs(group.params) do
      if placements.of[p] and not optimizer.elementwise then
        raise("%s looks at whole matrices, but tensor parallelism cuts them; take AdamW, SGD, Lion or another that goes element by element",
          class.of(optimizer).__name)
      end
      if not absent.is(p) then kept[#kept + 1] = p end
    end
    if #kept < #group.params then
      whole[g] = table.move(group.params, 1, #group.params, 1, {})
      for i = #group.params, 1, -1 do group.params[i] = kept[i] end
    end
  end
  for g, group in ipairs(optimizer.param_groups) do
    whole[g] = whole[g] or table.move(group.params, 1, #group.params, 1, {})
  end
  optimizer._whole_groups = whole
  return optimizer
end

return M
