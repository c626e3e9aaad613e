--- What the tests of examples/opencl share: where its library is, and a reason to skip where it cannot run.
local M = {}

local build = os.getenv "ACCEL_TEST_BUILD" or "build/dev" -- by hand: from the tree's folder
M.library = build .. "/lib/accel/accel_opencl.so"
M.run = build .. "/bin/accel-run"
-- what its compiler makes of the kernels is kept by it from run to run
M.environment = ("env -u ACCEL_DEVICE 'ACCEL_DEVICE_MODULES=%s' 'POCL_CACHE_DIR=%s/tests/tmp/opencl-kernels'"):format(M.library, build)

local function skip(why)
  print("skipped: " .. why)
  os.exit(77, true)
end

--- What accel-run with the device prints, and whether it succeeded.
---@param arguments string
---@param environment? string assignments
---@return string, boolean
function M.output(arguments, environment)
  local p = assert(io.popen(("%s %s %s %s 2>&1"):format(M.environment, environment or "", M.run, arguments)))
  local text = p:read "a"
  return text, p:close() == true
end

--- Skips without the library, without a device, and under a sanitizer, which OpenCL's compilers are not built for. The test
--- runs in a child, whose environment names the device's library.
---@param script string
---@param op? string for the tests of ops: the one that is tried
function M.child(script, op)
  if arg[1] == "child" then
    table.remove(arg, 1)
    return
  end
  if (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= "" then skip "OpenCL's compilers are not built for sanitizers" end
  local file = io.open(M.library, "rb")
  if not file then skip "accel_opencl.so is not built: OpenCL's headers were not found" end
  file:close()
  os.execute(("mkdir -p '%s/tests/tmp/opencl-kernels'"):format(build))
  local env = M.output "env"
  local state = env:match "\nopencl +([^\n]*)" or env
  if not state:find("opencl:0", 1, true) then skip(state) end
  local text, ok = M.output(("%s child %s"):format(script, op or ""))
  io.write(text)
  os.exit(ok and 0 or 1, true)
end

return M
