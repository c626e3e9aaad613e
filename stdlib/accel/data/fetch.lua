--- Samples of a data set, one or a batch.
local raise = require "accel.util.raise"

local M = {}

--- Sample i, which must not be nil.
---@param dataset table
---@param i integer
---@return any
function M.sample(dataset, i)
  local sample = dataset:get(i)
  if sample == nil then raise("data: sample %s of the data set is nil", tostring(i)) end
  return sample
end

--- One batch: by the data set's get_batch where it has one, else collated.
---@param dataset table
---@param positions integer[]
---@param collate? fun(samples: any[]): any given by the user; get_batch is not asked then
---@return any
function M.batch(dataset, positions, collate)
  if dataset.get_batch and not collate then return dataset:get_batch(positions) end
  local samples = {}
  for k, i in ipairs(positions) do samples[k] = M.sample(dataset, i) end
  return (collate or require("accel.data.collate").default_collate)(samples)
end

return M
