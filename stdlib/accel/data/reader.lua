--- How loaders read: one interface to a pass over data with positions, in this thread or by workers. Used by
--- data.DataLoader and by the Sources of prepared loaders (accel.accelerator).
local fetch = require "accel.data.fetch"
local worker = require("accel.core").worker

local M = {}

--- Batches of the positions that feed() returns: feed() -> positions, offset of the first among the samples of the pass
--- (of all ranks, from 0), nil at the end. With workers it is called ahead of the batches. unbatched: samples without
--- collation. sets_epoch: call set_epoch on the workers' data sets.
---@param base accel.data.DataLoader
---@param epoch integer
---@param seed integer
---@param feed fun(): integer[]?, integer?
---@param o? {unbatched: boolean?, sets_epoch: boolean?}
---@return fun(): any, integer[]?, integer? next batch, its positions, sample_offset
---@return any closing a value to close at the end, or nil
function M.indexed(base, epoch, seed, feed, o)
  if base.num_workers > 0 then
    return require("accel.data.workers").indexed(base, epoch, seed, feed, o or {})
  end
  local dataset, collate, unbatched = base.dataset, base.collate_fn, o and o.unbatched or false
  local draws, read = worker.draws(seed, epoch), fetch.read
  return function()
    local positions, sample_offset = feed()
    if positions == nil then return nil end
    return read(dataset, positions, collate, unbatched, draws, sample_offset), positions, sample_offset
  end
end

return M
