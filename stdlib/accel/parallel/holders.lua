--- Which of the ranks that hold the same tensor speaks for it: counts it in a norm, writes it to a checkpoint.
local placements = require "accel.parallel.placements"

local M = {}

--- Whether this rank is the first of the pipeline's that has a tensor.
local function first_of_stages(parallel, t)
  for _, pipeline in ipairs(parallel.pipelines) do
    local stages = pipeline._owners[t]
    if stages then
      local first = math.huge
      for stage in next, stages do first = math.min(first, stage % pipeline._axis.size) end
      return pipeline._axis.rank == first
    end
  end
  return true
end

--- Whether this rank represents its part of a tensor.
---@param parallel accel.accelerator.Parallelism
---@param t accel.Tensor a parameter or buffer of a model
---@param cut boolean ranks of the data axis have parts of it
---@return boolean
function M.speaks(parallel, t, cut)
  if not placements.of[t] and parallel:axis "tp".rank > 0 then return false end
  if not first_of_stages(parallel, t) then return false end
  local axis = cut and "dp_replicate" or placements.experts[t] and "edp" or "data"
  return parallel:axis(axis).rank == 0
end

return M
