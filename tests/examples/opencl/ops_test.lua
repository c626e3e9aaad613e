-- Every op that the OpenCL device has against the CPU, in f32 and in other memory layouts, results and gradients; with ACCEL_TEST_FULL=1 in
-- all dtypes. The others say in one line that the device does not have them. Compiling the kernels anew takes minutes.
--   tier: slow
--   accel-run tests/examples/opencl/ops_test.lua [OP]
package.path = arg[0]:match "^(.*)/" .. "/../../support/?.lua;" .. package.path
local opencl = require "opencl"
opencl.child(arg[0], arg[1])
local cases = require "op_cases"

local full = os.getenv "ACCEL_TEST_FULL" == "1"
local dtypes = full and { "f32", "f64", "bf16", "f16", "i64", "i32", "u8", "bool" } or { "f32" }
local failed, unsupported, compared = require("device_ops").run("opencl", dtypes)

-- what has a formula or a row in a table of the device was compared, itself or within the ops that call it
local have, without, n = {}, {}, 0
for name in pairs(compared) do n = n + 1; have[name] = true end
local names = {}
for _, file in ipairs { "formulas.h", "map.c", "move.c", "reduce.c", "rows.c", "matmul.c", "index.c", "loss.c", "random.c", "optim.c" } do
  local f <close> = assert(io.open(("%s/examples/opencl/%s"):format(os.getenv "ACCEL_TEST_SRC" or ".", file)))
  for name in f:read("a"):gmatch '{"([%w_]+)", [%w_]' do names[#names + 1] = name end
end
assert(#names > 150, "the device's tables were not found")
local visible = {}
for _, info in ipairs(cases.ops()) do visible[info.name] = not info.hidden end
for _, name in ipairs(names) do
  if not arg[1] and visible[name] and not have[name] then
    print(("FAIL %s has a kernel and no case was compared%s"):format(name, unsupported[name] and ": " .. unsupported[name] or ""))
    failed = failed + 1
  end
end
for name, why in pairs(unsupported) do
  if why:find "\n" then
    print(("FAIL %s: more than one line: %s"):format(name, why))
    failed = failed + 1
  end
  if not have[name] then without[#without + 1] = name end
end
table.sort(without)
print(("%d ops compared; without: %s"):format(n, table.concat(without, " ")))
cases.finish(failed)
