--- The files that data sets read by position keep open: the ones used last, up to a bound for all data sets of this Lua state, so that a
--- data set may have more files than a process may open. A file that was closed is opened again when it is needed. Used by JSONL, MDS,
--- the tables, and indexed data sets.
local worker_info = require "accel.data.worker_info"

local M = {}

-- Half of what macOS and many clusters allow a process (256), for the script itself and for all workers of a loader. A worker needs a few.
local MOST <const>, LEAST <const> = 96, 8

local slots = setmetatable({}, { __mode = "k" }) -- of data sets that are still in use
local tick = 0

--- Files that may be open at once in this Lua state.
---@return integer
function M.bound()
  local info = worker_info.get_worker_info()
  return info and math.max(LEAST, MOST // info.num_workers) or MOST
end

--- Closes the file that was used longest ago, if there are as many as may be open.
local function make_room()
  local n, oldest = 0, nil
  for slot in next, slots do
    n = n + 1
    if not oldest or slot.used < oldest.used then oldest = slot end
  end
  if n < M.bound() then return end
  slots[oldest] = nil
  local file = oldest.file
  oldest.file = nil
  if oldest.forget then oldest:forget() end
  file:close()
end

--- The file of a slot, a table that a data set has for each of its files. `open(slot)` returns an object with the method close. Its
--- result is in the field `file` as long as it is open. slot:forget(), if it has it, drops what else keeps the file open.
---@param slot table
---@param open fun(slot: table): any
---@return any
function M.get(slot, open)
  tick = tick + 1
  slot.used = tick
  if slot.file then return slot.file end
  make_room()
  slot.file = open(slot)
  slots[slot] = true
  return slot.file
end

return M
