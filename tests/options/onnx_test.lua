-- Options of accel.onnx: each one changes the file or raises. tests/support/option_sweep.lua has the rules.
--   accel-run tests/options/onnx_test.lua [NAME]
package.path = (arg[0]:match "^.*/" or "") .. "../support/?.lua;" .. package.path
local accel = require "accel"
local sweep = require "option_sweep"
local s = sweep.folder "onnx"
local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options.onnx"

accel.manual_seed(1)
local model = accel.nn.Linear(3, 2):eval()
s:recipe("accel.onnx.export", {
  base = function() return { model = model, inputs = accel.ones(2, 3), path = path } end,
  run = function(call, given)
    assert(call())
    local file <close> = assert(io.open(given.path, "rb"))
    return given.path, file:read "a"
  end,
  values = { input_names = { { "x" } }, output_names = { { "y" } }, path = { path .. "2" }, model = { accel.nn.Linear(3, 4):eval() },
    inputs = { accel.ones(5, 3) } },
})
s:finish()
