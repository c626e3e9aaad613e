--- This process's rank, without joining the world, and the offset of its clock from rank 0's.
local accel = require "accel"
local core = require "accel.profiler.core"

local M = {}

--- Rank and number of ranks of the world that this process has joined. 0, 1 without one.
function M.place()
  local dist = package.loaded["accel.dist"]
  if dist and dist.is_initialized() then return dist.get_rank(), dist.get_world_size() end
  local d = require "accel.dist"
  if d.is_initialized() then return d.get_rank(), d.get_world_size() end
  return 0, 1
end

function M.rank() return (M.place()) end

local ROUNDS <const> = 9

--- Collective: nanoseconds to add to this rank's times to have them on rank 0's clock. Ranks of one machine read the same clock:
--- 0 there. Between machines it is the median of some barriers' ends, which all ranks see within a round trip of one
--- another.
---@return integer
function M.clock_offset()
  local dist = require "accel.dist"
  if not dist.is_initialized() or dist.get_num_nodes() == 1 then return 0 end
  local rank, offsets = dist.get_rank(), {}
  local all = accel.zeros(dist.get_world_size(), { dtype = "i64", device = "cpu" })
  for i = 1, ROUNDS do
    dist.barrier()
    dist.all_gather_into_tensor(all, accel.tensor({ core.now() }, { dtype = "i64", device = "cpu" }))
    offsets[i] = all[1]:item() - all[rank + 1]:item()
  end
  table.sort(offsets)
  return offsets[(ROUNDS + 1) // 2]
end

return M
