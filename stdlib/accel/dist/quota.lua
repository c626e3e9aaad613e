--- Which of the M micro-batches of an update each rank takes: consecutive ones, their number differs by at most one. And
--- the blocks of such a range: aligned intervals [k 2^j, (k + 1) 2^j), the subtrees of the sum that a rank can compute alone.
--- Pure arithmetic, used by accel.dist.blocks and accel.accelerator.
local M = {}

--- The range of a rank.
---@param micro_batches integer
---@param ranks integer at most as many as micro-batches
---@param rank integer
---@return integer first from 0
---@return integer count
function M.of(micro_batches, ranks, rank)
  local first = rank * micro_batches // ranks
  return first, (rank + 1) * micro_batches // ranks - first
end

--- The largest aligned intervals that make up a range, in order.
---@param first integer
---@param count integer
---@return {at: integer, size: integer}[]
function M.blocks(first, count)
  local list, at, last = {}, first, first + count
  while at < last do
    local size = 1
    while at % (2 * size) == 0 and at + 2 * size <= last do size = 2 * size end
    list[#list + 1] = { at = at, size = size }
    at = at + size
  end
  return list
end

--- Whether sums of ranks in pairs are the tree of the micro-batches: the ranks are a power of two, and so are their shares.
---@param micro_batches integer
---@param ranks integer
---@return boolean
function M.is_even(micro_batches, ranks)
  local each = micro_batches // ranks
  return micro_batches % ranks == 0 and ranks & (ranks - 1) == 0 and each & (each - 1) == 0
end

return M
