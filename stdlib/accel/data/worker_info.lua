--- data.get_worker_info(): who reads, for data sets that share their work out among the workers of a loader.
local M = {}

---@class accel.data.WorkerInfo
---@field id integer from 0
---@field num_workers integer
---@field seed integer the loader's
---@field epoch integer of the pass under way
---@field dataset table this worker's own
--- example: accel.data.get_worker_info() == nil --> true

--- The description of this worker, inside a worker. nil in the script itself. A stream that is read by several workers
--- asks it for its part: every worker goes over all of it otherwise.
---
---   function Lines:iterate()
---     local info, i = accel.data.get_worker_info(), -1
---     local lines, n, id = io.lines(self.path), info and info.num_workers or 1, info and info.id or 0
---     return function()
---       for line in lines do i = i + 1 if i % n == id then return line end end
---     end
---   end
--- example: accel.data.get_worker_info() --> nil
---@return accel.data.WorkerInfo?
function M.get_worker_info() return M.current end

return M
