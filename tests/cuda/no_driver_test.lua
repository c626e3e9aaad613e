-- What a machine without a driver says: one line for a script that asks for cuda, one in accel-run env; the module that is named and not
-- there likewise. On a machine with a GPU the first part is skipped (the twin plays it there, too).
local accel = require "accel"
local build = os.getenv "ACCEL_TEST_BUILD"
local run = build .. "/bin/accel-run"
local twin = build .. "/tests/plugins/accel_cuda_twin.so"

local function output(command)
  local p = assert(io.popen(command .. " 2>&1"))
  local text = p:read "a"
  p:close()
  return text
end
local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end
local script = os.getenv "ACCEL_TEST_TMP" .. "/ask.lua"
local f = assert(io.open(script, "w"))
f:write 'local accel = require "accel" print(accel.zeros(2, { device = "cuda" }))\n'
f:close()

-- The first line names the reason; a traceback may follow.
local function says(environment, reason)
  local text = output(environment .. " " .. run .. " " .. script)
  local first = text:match "^[^\n]*"
  assert(first:find("no device 'cuda' here: " .. reason, 1, true), "expected '" .. reason .. "', got: " .. text)
  assert(first:find("; available: cpu, meta", 1, true), first)
end
local function env_says(environment, reason)
  local text = output(environment .. " " .. run .. " env")
  local line = text:match "\n(cuda [^\n]*)"
  assert(line and line:find(reason, 1, true), "accel-run env says: " .. tostring(line))
end

says("ACCEL_CUDA_MODULE=accel_nowhere.so", "this build has no CUDA (accel_nowhere.so is missing)")
env_says("ACCEL_CUDA_MODULE=accel_nowhere.so", "absent")

if exists(twin) then
  local without = "CUDA_TWIN_DEVICES=0 ACCEL_CUDA_MODULE=" .. twin
  says(without, "CUDA is built in, but there is no NVIDIA driver on this machine")
  env_says(without, "no NVIDIA driver")
  local with = "ACCEL_CUDA_MODULE=" .. twin
  env_says(with, "cuda:0 emulated device")
  assert(output(with .. " " .. run .. " " .. script):find("device='cuda:0'", 1, true))
end

-- the driver is looked for when a device is first asked for, not at every start
do
  local function looks(code)
    local text = output(("env -u ACCEL_DEVICE -u ACCEL_CUDA_MODULE LD_DEBUG=libs %s -e '%s'"):format(run, code))
    return text:find("find library=libcuda.so.1", 1, true) ~= nil, text:find("find library=", 1, true) ~= nil
  end
  local at_start, told = looks 'local a = require "accel" a.device("cpu", function() a.ones(1) end)'
  assert(not at_start, "a start asks for the driver")
  assert(not told or looks 'require("accel").ones(1)')
end

local cuda = accel.features().devices.cuda
if cuda.count == 0 then says("", cuda.state:match "; (.*)" or cuda.state) end
for _, name in ipairs { "cuda:x", "cuda:-1", "cuda:1000000", "cudart" } do
  local ok, why = pcall(accel.zeros, 2, { device = name })
  assert(not ok and tostring(why):find("no device '" .. name .. "' here", 1, true), tostring(why))
end
