--- What the suites of tests/cuda share: they skip without a device (exit status 77) and leave nothing on it.
local accel = require "accel"

local M = { state = accel.features() }

if M.state.cuda_devices == 0 then
  print("skipped: " .. (M.state.cuda or "this build has no CUDA"))
  os.exit(77, true)
end

--- The twin of the tests, not a GPU.
M.emulated = M.state.cuda:find "emulated" ~= nil

--- What a command prints, without the line in which a sanitizer speaks of the twin's fibers; and whether it succeeded.
---@param command string
---@return string, boolean
function M.output(command)
  local p = assert(io.popen(command .. " 2>&1"))
  local text = p:read "a"
  return (text:gsub("[^\n]*==%d+==WARNING: ASan doesn't fully support [^\n]*\n", "")), p:close() == true
end

--- The end of a suite of n cases; bytes that are left on the device are a failure, too.
---@param n integer
---@param failed integer
function M.finish(n, failed)
  collectgarbage()
  collectgarbage()
  local left = accel.mem_stats("cuda").live_bytes
  if left ~= 0 then
    print(("FAIL %d bytes are left on the device"):format(left))
    failed = failed + 1
  end
  print(("%d cases, %d failed"):format(n, failed))
  os.exit(failed == 0, true)
end

return M
