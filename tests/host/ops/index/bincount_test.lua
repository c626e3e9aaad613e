-- bincount and one_hot on the meta device, in a state that has not asked for the flags of that device: the length is not known, which is an
-- error. It was a crash.
--   accel-run tests/host/ops/index/bincount_test.lua
local accel = require "accel"

local ids = accel.zeros({ 3 }, { dtype = "i64", device = "meta" })
local ok, err = pcall(accel.bincount, ids)
assert(not ok and tostring(err):find "give minlength", err)
assert(accel.bincount(ids, { minlength = 5 }).shape[1] == 5)
assert(not pcall(accel.one_hot, ids))
assert(accel.one_hot(ids, 4).shape[2] == 4)
