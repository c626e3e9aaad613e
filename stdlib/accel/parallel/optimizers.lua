--- Optimizers of models that are on several ranks: they update this rank's part. Called by accelerator:prepare, or by a script
--- that makes the parallel model itself.
local absent = require "accel.parallel.absent"
local class = require "accel.util.class"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"

local M = {}

--- Removes other stages' parameters from an optimizer, and refuses an optimizer of whole matrices if ranks have parts.
---@param optimizer accel.optim.Optimizer before its first step
---@return accel.optim.Optimizer optimizer
function M.adopt(optimizer)
  local whole = optimizer._whole_groups or {} -- the parameters of all ranks together, for checkpoints
  for g, group in ipairs(optimizer.param_groups) do
    local kept = {}
    for _, p in ipairs(group.params) do
      if placements.of[p] and not optimizer.elementwise then
        raise("%s needs whole matrices, but tensor parallelism shards them; use AdamW, SGD, Lion or another elementwise optimizer",
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
  optimizer._whole_groups, optimizer._adopt_whole = whole, M.adopt -- once more with every group that is added
  return optimizer
end

return M
