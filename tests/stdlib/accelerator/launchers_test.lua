-- notebook_launcher and debug_launcher: results of every rank, what ranks are told, what is refused.
--   accel-run tests/stdlib/accelerator/launchers_test.lua
local accel = require "accel"
local A = accel.accelerator

local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local path = tmp .. "/launched.lua"
local file = assert(io.open(path, "w"))
file:write [[
return function(x)
  local accel = require "accel"
  local a = accel.Accelerator()
  return { rank = a.process_index, n = a.num_processes, precision = a.mixed_precision, device = tostring(a.device), x = x }
end]]
file:close()

local function fails(part, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(part, 1, true), tostring(why))
end

local results = A.debug_launcher(path, { 7 })
assert(#results == 2 and results[1].rank == 0 and results[2].rank == 1 and results[2].n == 2 and results[2].x == 7)
assert(results[1].device == "cpu" and results[1].precision == "no")
results = A.notebook_launcher(path, { "a" }, { num_processes = 3, mixed_precision = "BF16" })
assert(#results == 3 and results[3].precision == "bf16" and results[3].x == "a")

fails("numbered from 0", A.notebook_launcher, path, {}, { node_rank = 1 })
fails("for several, use accel-run --num-machines", A.notebook_launcher, path, {}, { num_nodes = 2, node_rank = 1 })
fails("mixed_precision", A.notebook_launcher, path, {}, { mixed_precision = "fp12" })
fails("did you mean 'num_processes'", A.notebook_launcher, path, {}, { num_procesess = 1 })
fails("num_processes must be a positive integer", A.debug_launcher, path, {}, 0)
local file <close> = assert(io.open(arg[0]))
fails("uses 'file', which is a FILE*; create it inside the function", A.debug_launcher, function() return file:read "l" end)
local base, weights = 10, accel.tensor { 1, 2, 3 }
local function scaled(x) return weights * (base + x) end
results = A.debug_launcher(function(x)
  local dist = require "accel.dist"
  return { rank = dist.get_rank(), sum = scaled(x):sum():item() }
end, { 2 }, 3)
assert(#results == 3 and results[3].rank == 2 and results[1].sum == 72)
results = A.notebook_launcher(function() return scaled(accel.dist.get_rank()):sum():item() end, {}, { num_processes = 2 })
assert(results[1] == 60 and results[2] == 66)
accel.Accelerator()
fails("an Accelerator exists already", A.notebook_launcher, path, {}, { num_processes = 2 })
print "ok"
