-- The step boundary, devices, generators across steps: bindings/embed/lac_step.c, lac_device.c, lac_precision.c.
local accel = require "accel"

local n = accel.step_count()
accel.manual_seed(1)
local a = accel.rand(4):tolist()
accel.step()
assert(accel.step_count() == n + 1 and accel.get_rng_state().step == 1 and accel.get_rng_state().ordinal == 0)
assert(accel.inspect(accel.rand(4):tolist()) ~= accel.inspect(a))
assert(not accel.interrupted())
assert(accel.on_interrupt("flag") == "raise")
assert(accel.on_interrupt("requeue") == "flag")
assert(accel.on_interrupt("raise") == "requeue")
assert(not pcall(accel.on_interrupt, "ignore"))

-- Devices.
assert(accel.get_default_device() == "cpu" and accel.devices()[1] == "cpu" and accel.num_threads() >= 1)
do
  local _ <close> = accel.device("meta")
  assert(accel.zeros(2).device == "meta")
end
assert(accel.zeros(2).device == "cpu")
accel.device("meta", function() assert(accel.randn(2).device == "meta") end)
accel.set_default_device("meta")
assert(accel.ones(1).device == "meta")
accel.set_default_device("cpu")
accel.synchronize()
local x = accel.zeros(1000)
local m = accel.mem_stats()
assert(m.live_bytes >= 4000 and m.peak_bytes >= m.live_bytes and m.born_bytes >= m.peak_bytes
  and m.live_handles == accel.live())
accel.reset_peak_memory()
assert(accel.mem_stats().peak_bytes == accel.mem_stats().live_bytes)
x:release()
accel.empty_cache()
assert(not pcall(accel.mem_stats, "gpu"))

-- Time and terminal.
local t = accel.clock()
assert(accel.clock() >= t and accel.isatty(99) == false)

-- Autocast is a mode like the others.
local p, q = accel.randn(4, 4), accel.randn(4, 4)
do
  local _ <close> = accel.autocast { dtype = "bf16" }
  assert(accel.is_autocast_enabled() and accel.get_autocast_dtype() == "bf16" and p:matmul(q).dtype == "bf16")
  accel.autocast({ enabled = false }, function() assert(p:matmul(q).dtype == "f32") end)
  assert(p:matmul(q).dtype == "bf16")
end
assert(not accel.is_autocast_enabled() and p:matmul(q).dtype == "f32")
assert(accel.autocast("cpu", { dtype = "bf16" }, function() return p:matmul(q).dtype end) == "bf16")
assert(not pcall(accel.autocast, { dtype = "i64" }) and not pcall(accel.autocast, { dtpe = "bf16" }))

-- Parameters and features are named.
local params, unknown = accel.params()
local by_name = {}
for _, row in ipairs(params) do by_name[row.name] = row end
assert(by_name.ACCEL_NUM_THREADS and by_name.ACCEL_GC.allowed == "auto|exact|off" and #unknown >= 0)
assert(accel.features().isa and accel.features().cpus >= 1)
