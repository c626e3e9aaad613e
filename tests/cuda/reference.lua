-- Results that PyTorch computed (tests/reference), on the device. Runs as ops_suite.lua does.
--   accel-run tests/cuda/reference.lua ops | golden
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"

accel.set_default_device "cuda"
local folder, what = here .. "/../reference/", arg[1]
rawset(arg, 0, folder .. what .. ".lua")
rawset(arg, 1, folder .. what)
dofile(arg[0])
suite.finish()
