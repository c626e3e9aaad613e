-- Every op on the CUDA device against the CPU: the cases of the numeric tests in eight dtypes and in other memory layouts, results and
-- gradients. An op without a kernel there fails.
--   accel-run tests/cuda/ops_suite.lua [OP]
-- On the twin (ACCEL_CUDA_MODULE) this runs everywhere; on a GPU it needs one. Without a device: exit status 77.
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local cases = require "op_cases"
local suite = require "cuda_suite"

local failed, unsupported = require("device_ops").run("cuda", { "f32", "f64", "bf16", "f16", "i64", "i32", "u8", "bool" })
for name, inner in pairs(unsupported) do
  print(("FAIL %s has no kernel%s"):format(name, name == inner and "" or " (for " .. inner .. ")"))
  failed = failed + 1
end

suite.failed = failed
suite.finish()
cases.finish(0)
