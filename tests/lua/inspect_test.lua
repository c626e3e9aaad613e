-- accel.inspect: lua/inspect.lua.
local accel = require "accel"
local inspect = accel.inspect

assert(inspect(1) == "1" and inspect(1.5) == "1.5" and inspect("a\nb") == '"a\\nb"'
  and inspect(nil) == "nil" and inspect(true) == "true")
assert(inspect {} == "{}" and inspect { 1, 2 } == "{ 1, 2 }")
assert(inspect { b = 1, a = { 2 } } == "{ a = { 2 }, b = 1 }")
assert(inspect { ["not a name"] = 1, ["end"] = 2, [3] = 4 } == '{ [3] = 4, ["end"] = 2, ["not a name"] = 1 }')
local cycle = {}
cycle.self = cycle
assert(inspect(cycle) == "{ self = <cycle> }")
assert(inspect({ { { { 1 } } } }, { depth = 2 }) == "{ { {...} } }")
local long = {}
for i = 1, 50 do long[i] = ("item %d"):format(i) end
assert(select(2, inspect(long):gsub("\n", "")) == 51)
assert(inspect(long, { items = 3, width = 1000 }):find("... 47 more", 1, true))
assert(inspect(print) == "<C function>" and inspect(function() end):find("inspect_test.lua:", 1, true))
assert(inspect(accel.tensor { 1, 2, 3.0 }) == "tensor<f32 (3), min 1 max 3 mean 2 std 0.816497>")
assert(inspect(accel.tensor(7)) == "tensor<i64 (), = 7>"
  and inspect(accel.zeros(0, 2)) == "tensor<f32 (0, 2)>")
assert(inspect(accel.zeros(2, { device = "meta" })) == "tensor<f32 (2), on meta>")
assert(inspect(accel.ones(1, { requires_grad = true })):find("requires_grad", 1, true))
local gone = accel.ones(1)
gone:release()
assert(inspect { gone } == "{ tensor(released) }")
assert(inspect(setmetatable({ 1 }, { __name = "Thing" })) == "Thing { 1 }")
assert(select(2, pcall(inspect, 1, { dept = 2 })):find("no option 'dept'", 1, true))
