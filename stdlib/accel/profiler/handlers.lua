--- Handlers for complete traces (on_trace_ready), and names of activities.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- Names of recorded activities: torch's enumeration.
M.ProfilerActivity = { CPU = "cpu", CUDA = "cuda", XPU = "xpu", MTIA = "mtia", HPU = "hpu" }

--- An on_trace_ready that writes every trace to folder/worker.<ns>.pt.trace.json, for TensorBoard's profile plugin. worker
--- defaults to the name of the machine and the rank.
---@param folder string created if missing
---@param worker? string
---@return fun(prof: accel.profiler.Profile)
function M.tensorboard_trace_handler(folder, worker, ...)
  check.surplus("tensorboard_trace_handler", ...)
  if type(folder) ~= "string" then raise("tensorboard_trace_handler: the folder must be a string, got %s", check.shown(folder)) end
  if worker ~= nil and type(worker) ~= "string" then raise("tensorboard_trace_handler: worker must be a string, got %s", check.shown(worker)) end
  return function(prof)
    assert(accel.makedirs(folder))
    local name = worker or ("rank%d"):format(require "accel.profiler.ranks".rank())
    prof:export_chrome_trace(("%s/%s.%d.pt.trace.json"):format(folder, name, os.time() * 1000000000 + prof:_times() % 1000000000))
  end
end

return M
