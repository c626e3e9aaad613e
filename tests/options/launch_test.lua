-- Options of accel.launch: each one changes what the ranks are told or how they run, or raises (support/option_sweep.lua).
-- tier: slow
--   accel-run tests/options/launch_test.lua
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder({ "system.lua" }, function(entry) return entry.name == "accel.launch" end)

local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/launch-")
local module, logs, failed = tmp .. "/rank.lua", tmp .. "/logs", tmp .. "/failed"
local file = assert(io.open(module, "wb"))
file:write(([[
local accel = require "accel"
return function(...)
  local names = {}
  for _, name in ipairs { "ACCEL_RESUME", "OWN" } do names[#names + 1] = os.getenv(name) or "unset" end
  local file <close> = assert(io.open "/proc/self/status")
  if not io.open(%q) then
    assert(io.open(%q, "w")):close()
    error "the first attempt fails"
  end
  return { args = table.pack(...), names = names, backend = accel.dist.get_backend(), size = accel.dist.get_world_size(),
    timeout = accel.dist.get_timeout(), threads = accel.num_threads(), number = accel.rand(1):item(), fits = pcall(accel.empty, 2 ^ 25 // 1 | 0),
    cpus = file:read("a"):match "Cpus_allowed_list:%%s*(%%S+)" }
end
]]):format(failed, failed))
file:close()

local function launched(call, given)
  os.execute(("rm -rf '%s'; touch '%s'"):format(logs, failed))
  if given.max_restarts then os.remove(failed) end
  local ok, results = pcall(call)
  if not ok and given.max_restarts == 0 then return "failed" end
  if not ok then error(results, 0) end
  return results, accel.listdir(logs) ~= nil
end
s:recipe("accel.launch", {
  base = function() return { module = module, args = {}, num_processes = 1, seed = 5 } end, run = launched,
  values = {
    args = { { 1, "two" } }, num_processes = { 2 }, time_limit = { 0.01 }, env = { { OWN = "1" } }, timeout = { 77 }, backend = { "tcp" },
    num_threads = { 3 }, seed = { 9 }, memory_limit = { "64MiB" }, cpu_affinity = { accel.process.cores() > 1 and "none" or "wrong" },
    log_dir = { logs }, tee = { true }, max_restarts = { 1 }, resume = { "auto" }, monitor_interval = { 0.5 },
  },
  with = {
    backend = { num_processes = 2 }, cpu_affinity = { num_processes = 2 }, max_restarts = { max_restarts = 0 },
  },
  raises = { time_limit = "time_limit", cpu_affinity = "accel%-run ended with status", tee = "accel%-run ended with status",
    monitor_interval = "accel%-run ended with status" },
})
s:finish()
