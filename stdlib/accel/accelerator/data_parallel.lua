--- Collectives over the data ranks of the last Accelerator: the ranks that read different data, in a mesh or in the world. Ranks that
--- share a model read the same data.
local accel = require "accel"
local check = require "accel.util.check"
local dist = require "accel.dist"
local operations = require "accel.accelerator.operations"
local parallelism = require "accel.accelerator.parallelism"
local raise = require "accel.util.raise"

local M = {}

local function axis()
  local mesh = parallelism.current
  return mesh and mesh:axis "dp" or { size = dist.get_world_size() }
end

--- Means of losses over the data ranks, [n].
--- example: accel.accelerator.avg_losses_across_data_parallel_group { accel.tensor(2.0), accel.tensor(3.0) } --> { 2, 3 }
---@param losses accel.Tensor[] of one element each
---@return accel.Tensor
function M.avg_losses_across_data_parallel_group(losses)
  if type(losses) ~= "table" or #losses == 0 then
    raise("avg_losses_across_data_parallel_group: expected a list of losses, got %s", check.shown(losses))
  end
  local list = {}
  for i, loss in ipairs(losses) do list[i] = loss:detach():reshape(1) end
  local all, a = accel.cat(list, 1), axis()
  if a.size > 1 then dist.all_reduce(all, { group = a.group, op = "avg" }) end
  return all
end

--- Rows of the data ranks below each other, for every tensor of a nested structure.
--- example: accel.accelerator.gather_across_data_parallel_groups { x = accel.tensor { 1, 2 } }.x --> { 1, 2 }
---@param tensor any
---@return any
function M.gather_across_data_parallel_groups(tensor)
  local a = axis()
  if type(tensor) ~= "table" and not accel.is_tensor(tensor) then
    raise("gather_across_data_parallel_groups: expected a tensor or a table of tensors, got %s", check.shown(tensor))
  end
  return operations.recursively_apply(function(t)
    if t.ndim == 0 then t = t:reshape(1) end
    if a.size == 1 then return t end
    local list = {}
    for i = 1, a.size do list[i] = accel.empty_like(t) end
    dist.all_gather(list, t:contiguous(), { group = a.group })
    return accel.cat(list, 1)
  end, tensor, { error_on_other_type = true })
end

return M
