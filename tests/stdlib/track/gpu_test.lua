-- What GPUs do beside a run of the store, from a stand-in for NVML that ACCEL_NVML names: a series for each value; none with ACCEL_NVML=off, or
-- without `system`.  tier: every change, memory
--   accel-run tests/stdlib/track/gpu_test.lua       (ACCEL_TEST_PLUGINS: where the tests' libraries lie)
local accel = require "accel"
local plugins = os.getenv "ACCEL_TEST_PLUGINS"

if arg[1] then
  local run = accel.track.Run { dir = arg[1], name = arg[2], system = arg[2] ~= "plain" }
  run:log({ loss = 0.5 }, 1)
  run:finish()
  return
end

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/gpu-"))
local _, message, code = accel.track.Store.open(root)
if code == "unsupported" or not plugins then
  print("skip: " .. (plugins and message or "ACCEL_TEST_PLUGINS names no folder"))
  os.exit(77)
end
local function series(name, nvml)
  assert(os.execute(("ACCEL_NVML='%s' '%s' '%s' '%s' %s"):format(nvml, accel.process.program(), arg[0], root, name)))
  local store = accel.track.Store(root)
  for _, run in ipairs(store:runs()) do
    if run.name == name then
      local by = {}
      for _, s in ipairs(assert(store:series(run))) do by[s.tag] = s.last end
      return by
    end
  end
end

local twin = plugins .. "/plugin_nvml.so"
local by = series("seen", twin)
assert(by.loss == 0.5 and by["system/memory_percent"])
local want = { gpu0_percent = 87, gpu0_memory_mib = 1536, gpu0_celsius = 61, gpu0_watts = 345.5, gpu1_memory_mib = 3072, gpu1_celsius = 62 }
for name, value in pairs(want) do assert(by["system/" .. name] == value, name) end
for tag in pairs(by) do
  local name = tag:match "^system/(gpu.*)$"
  assert(not name or want[name], tag)
end
for tag in pairs(series("off", "off")) do assert(not tag:find "gpu", tag) end
for tag in pairs(series("plain", twin)) do assert(not tag:find "^system/", tag) end
os.execute(("rm -rf '%s'"):format(root))
